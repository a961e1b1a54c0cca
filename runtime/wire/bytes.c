/* SPDX-License-Identifier: Apache-2.0 */
/* Byte by byte, so that alignment and byte order of the machine do not matter;
 * compilers turn the loops into single moves. */
#include "runtime/wire/bytes.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "runtime/base/mem.h"

void bytes_store(uint8_t *p, uint64_t v, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

uint64_t bytes_load(const uint8_t *p, size_t n_bytes)
{
    uint64_t v = 0;

    for (size_t i = 0; i < n_bytes; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

void bytes_store_u32(uint8_t *p, uint32_t v)
{
    bytes_store(p, v, 4);
}

uint32_t bytes_load_u32(const uint8_t *p)
{
    return (uint32_t)bytes_load(p, 4);
}

/* --- writing --- */

void bytes_put(struct strbuf *out, uint64_t v, size_t n_bytes)
{
    uint8_t raw[8];

    bytes_store(raw, v, n_bytes);
    strbuf_add(out, raw, n_bytes);
}

void bytes_put_u32(struct strbuf *out, uint32_t v)
{
    bytes_put(out, v, 4);
}

void bytes_put_f64(struct strbuf *out, double v)
{
    uint64_t bits;

    memcpy(&bits, &v, sizeof(bits));
    bytes_put(out, bits, 8);
}

void bytes_put_name(struct strbuf *out, const char *s, size_t max)
{
    size_t n = strnlen(s, max - 1);

    bytes_put(out, n, 2);
    strbuf_add(out, s, n);
}

void bytes_put_str(struct strbuf *out, const char *s)
{
    size_t n = strlen(s);

    bytes_put_u32(out, (uint32_t)n);
    strbuf_add(out, s, n);
}

/* --- reading --- */

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

bool bytes_get_raw(struct bytes_reader *r, size_t n, const uint8_t **ret)
{
    *ret = bytes_raw(r, n);
    return !r->is_bad;
}

bool bytes_get(struct bytes_reader *r, size_t n_bytes, uint64_t *ret)
{
    const uint8_t *p = bytes_raw(r, n_bytes);

    if (!p)
        return false;
    *ret = bytes_load(p, n_bytes);
    return true;
}

bool bytes_get_f64(struct bytes_reader *r, double *ret)
{
    uint64_t bits;

    if (!bytes_get(r, 8, &bits))
        return false;
    memcpy(ret, &bits, sizeof(bits));
    return true;
}

uint32_t bytes_u32(struct bytes_reader *r)
{
    uint64_t v;

    return bytes_get(r, 4, &v) ? (uint32_t)v : 0;
}

/* n bytes as text, into ret of size_bytes. */
static bool bytes_copy_text(struct bytes_reader *r, size_t n, char *ret, size_t size)
{
    const uint8_t *p = n < size ? bytes_raw(r, n) : NULL;

    if (!p || memchr(p, '\0', n)) {
        r->is_bad = true;
        r->left = 0;
        ret[0] = '\0';
        return false;
    }
    memcpy(ret, p, n);
    ret[n] = '\0';
    return true;
}

bool bytes_get_name(struct bytes_reader *r, char *ret, size_t max)
{
    uint64_t n;

    return bytes_get(r, 2, &n) && bytes_copy_text(r, n, ret, max);
}

void bytes_str(struct bytes_reader *r, char *ret, size_t size_bytes)
{
    uint32_t n = bytes_u32(r);

    (void)bytes_copy_text(r, n, ret, size_bytes);
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

void bytes_host(struct bytes_reader *r, char *ret, size_t size_bytes)
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
