/* SPDX-License-Identifier: Apache-2.0 */
/* Byte by byte, so that alignment and byte order of the machine do not matter;
 * compilers turn the loops into single moves. Used by message.c, trace_wire.c and
 * control/. */
#include "runtime/core/wire.h"

#include <string.h>

void wire_put(struct strbuf *b, uint64_t v, size_t n_bytes)
{
    char raw[8];

    for (size_t i = 0; i < n_bytes && i < sizeof(raw); i++)
        raw[i] = (char)(uint8_t)(v >> (8 * i));
    strbuf_add(b, raw, n_bytes);
}

void wire_put_f64(struct strbuf *b, double v)
{
    uint64_t bits;

    memcpy(&bits, &v, sizeof(bits));
    wire_put(b, bits, 8);
}

void wire_put_text(struct strbuf *b, const char *s, size_t max)
{
    size_t n = strnlen(s, max - 1);

    wire_put(b, n, 2);
    strbuf_add(b, s, n);
}

bool wire_get(struct wire_reader *r, size_t n_bytes, uint64_t *ret)
{
    uint64_t v = 0;

    if (r->n - r->at < n_bytes)
        return false;
    for (size_t i = 0; i < n_bytes; i++)
        v |= (uint64_t)r->p[r->at + i] << (8 * i);
    r->at += n_bytes;
    *ret = v;
    return true;
}

bool wire_get_f64(struct wire_reader *r, double *ret)
{
    uint64_t bits;

    if (!wire_get(r, 8, &bits))
        return false;
    memcpy(ret, &bits, sizeof(bits));
    return true;
}

bool wire_get_text(struct wire_reader *r, char *ret, size_t max)
{
    uint64_t n;

    if (!wire_get(r, 2, &n) || n >= max || r->n - r->at < n)
        return false;
    if (n > 0 && memchr(r->p + r->at, 0, n))
        return false;
    memcpy(ret, r->p + r->at, n);
    ret[n] = 0;
    r->at += n;
    return true;
}

bool wire_get_bytes(struct wire_reader *r, size_t n, const uint8_t **ret)
{
    if (r->n - r->at < n)
        return false;
    *ret = r->p + r->at;
    r->at += n;
    return true;
}
