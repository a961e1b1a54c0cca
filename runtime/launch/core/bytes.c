/* SPDX-License-Identifier: Apache-2.0 */
/* Reader and writer of message.c, errand.c and shell.c. After the first length that
 * does not fit nothing more is read, so callers check once, at the end. */
#include "runtime/launch/core/bytes.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "runtime/base/mem.h"

void bytes_put_u32(struct strbuf *out, uint32_t v)
{
    uint8_t b[4] = {(uint8_t)(v >> 24), (uint8_t)(v >> 16), (uint8_t)(v >> 8),
                    (uint8_t)v};
    strbuf_add(out, b, sizeof(b));
}

void bytes_put_str(struct strbuf *out, const char *s)
{
    size_t n = strlen(s);
    bytes_put_u32(out, (uint32_t)n);
    strbuf_add(out, s, n);
}

const uint8_t *bytes_raw(struct bytes_reader *r, size_t n)
{
    const uint8_t *p = r->p;
    if (r->is_bad || r->left < n) {
        r->is_bad = true;
        r->left = 0;
        return NULL;
    }
    r->p += n;
    r->left -= n;
    return p;
}

uint32_t bytes_u32(struct bytes_reader *r)
{
    const uint8_t *p = bytes_raw(r, 4);
    if (!p)
        return 0;
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

void bytes_str(struct bytes_reader *r, char *ret, size_t size_bytes)
{
    uint32_t n = bytes_u32(r);
    ret[0] = '\0';
    if (n >= size_bytes)
        r->is_bad = true;
    const uint8_t *p = bytes_raw(r, n);
    if (!p || memchr(p, '\0', n)) {
        r->is_bad = true;
        return;
    }
    memcpy(ret, p, n);
    ret[n] = '\0';
}

char *bytes_text(struct bytes_reader *r)
{
    uint32_t n = bytes_u32(r);
    const uint8_t *p = bytes_raw(r, n);
    char *s = p && !memchr(p, '\0', n) ? mem_alloc((size_t)n + 1) : NULL;
    if (!s) {
        r->is_bad = true;
        return NULL;
    }
    memcpy(s, p, n);
    s[n] = '\0';
    return s;
}

void bytes_name(struct bytes_reader *r, char *ret, size_t size_bytes)
{
    bytes_str(r, ret, size_bytes);
    if (!*ret)
        r->is_bad = true;
    for (const char *p = ret; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr("-._:%", *p))
            r->is_bad = true;
}

int bytes_end(const struct bytes_reader *r, const char *what, struct err *err)
{
    if (r->is_bad || r->left)
        return err_set(err, -EPROTO, "a %s message is malformed (another version?)",
                       what);
    return 0;
}
