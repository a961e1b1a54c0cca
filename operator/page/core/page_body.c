/* SPDX-License-Identifier: Apache-2.0 */
/* Text -> safe text -> JSON string. Called by page_log.c and page_fetch's parts. */
#include "operator/page/core/page_body.h"

#include <string.h>

#include "operator/cli/core/show_text.h"
#include "runtime/base/mem.h"

#define ERROR_MAX 8192u

/* Newlines and tabs are the only control characters of a safe text. */
static void body_put_quoted(const char *s, struct strbuf *out)
{
    strbuf_putc(out, '"');
    while (*s) {
        size_t n = strcspn(s, "\"\\\n\t");

        strbuf_add(out, s, n);
        s += n;
        if (*s) {
            strbuf_putc(out, '\\');
            strbuf_putc(out, *s == '\n' ? 'n' : *s == '\t' ? 't' : *s);
            s++;
        }
    }
    strbuf_putc(out, '"');
}

void page_body_error(const char *why, struct strbuf *out)
{
    CLEANUP(strbuf_release) struct strbuf safe = {0};

    strbuf_init(&safe, ERROR_MAX);
    text_put_safe(&safe, why, strlen(why), false);
    strbuf_puts(out, "{\"error\":");
    body_put_quoted(safe.n > 0 ? strbuf_str(&safe) : "out of memory", out);
    strbuf_putc(out, '}');
}

bool page_body_text(const char *p, size_t n, struct strbuf *out)
{
    CLEANUP(strbuf_release) struct strbuf safe = {0};
    bool is_cut = n > PAGE_TEXT_MAX;

    if (is_cut) {
        const char *begin = p + n - PAGE_TEXT_MAX, *line;

        line = memchr(begin, '\n', PAGE_TEXT_MAX - 1);
        begin = line ? line + 1 : begin;
        n -= (size_t)(begin - p);
        p = begin;
    }
    strbuf_init(&safe, (size_t)4 * PAGE_TEXT_MAX);
    text_put_safe(&safe, p, n, true);
    if (strbuf_status(&safe) < 0)
        out->status = strbuf_status(&safe);
    body_put_quoted(strbuf_str(&safe), out);
    return is_cut;
}
