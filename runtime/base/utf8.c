/* SPDX-License-Identifier: Apache-2.0 */
/* By the table of the well-formed sequences in the Unicode standard. Called by core/trace.c,
 * core/goodbye.c, live/live_fields.c, live/live_page.c and launch/core. */
#include "runtime/base/utf8.h"

#include <string.h>

size_t utf8_length(const unsigned char *s)
{
    size_t n = s[0] < 0x80    ? 1
               : s[0] < 0xc2  ? 0
               : s[0] < 0xe0  ? 2
               : s[0] < 0xf0  ? 3
               : s[0] <= 0xf4 ? 4
                              : 0;

    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    /* overlong forms, surrogates, beyond U+10FFFF */
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f)
        || (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return n;
}

void utf8_put_json(const char *s, struct strbuf *out)
{
    const unsigned char *p = (const unsigned char *)s;

    while (*p) {
        size_t n = utf8_length(p);

        if (*p == '"' || *p == '\\')
            strbuf_printf(out, "\\%c", *p);
        else if (*p < 0x20)
            strbuf_printf(out, "\\u%04x", *p);
        else if (n == 0)
            strbuf_putc(out, '?');
        else
            strbuf_add(out, p, n);
        p += n > 0 ? n : 1;
    }
}

void utf8_clean(const char *text, char *ret, size_t size_bytes)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t at = 0, n;

    for (; *s; s += n) {
        size_t size = utf8_length(s);

        n = size > 0 ? size : 1;
        if (at + n >= size_bytes)
            break;
        if (size == 0 || *s < ' ' || *s == 0x7f)
            ret[at] = '?';
        else
            memcpy(ret + at, s, n);
        at += n;
    }
    ret[at] = '\0';
}
