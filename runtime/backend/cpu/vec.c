/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual vectors and their cursors.
 *
 * A batch of many small tensors and one of a single large tensor are the same to the
 * algorithms: n_bytes bytes, of which they take the next run. Cursors only move forward
 * and never point at an exhausted or empty piece after cursor_next(), so empty tensors
 * cost nothing. Called by shm_coll.c, net.c, net_coll.c. Pure. */
#include "runtime/backend/cpu/vec.h"

#include <string.h>

struct vec vec_of(const struct piece *v, size_t n)
{
    struct vec r = {.v = v, .n = n};
    for (size_t i = 0; i < n; i++)
        r.n_bytes += v[i].n;
    return r;
}

struct cursor cursor_at(const struct vec *v)
{
    return (struct cursor){.v = v->v, .n = v->n};
}

uint64_t
cursor_next(struct cursor *c, uint64_t max, const uint8_t **ret_in, uint8_t **ret_out)
{
    while (c->i < c->n && c->off == c->v[c->i].n) {
        c->i++;
        c->off = 0;
    }
    if (c->i == c->n || max == 0)
        return 0;
    const struct piece *p = &c->v[c->i];
    uint64_t n = p->n - c->off < max ? p->n - c->off : max;
    *ret_in = p->in ? p->in + c->off : NULL;
    *ret_out = p->out ? p->out + c->off : NULL;
    c->off += n;
    return n;
}

void cursor_skip(struct cursor *c, uint64_t n)
{
    const uint8_t *in;
    uint8_t *out;
    while (n > 0) {
        uint64_t m = cursor_next(c, n, &in, &out);
        if (m == 0)
            return;
        n -= m;
    }
}

void cursor_pack(struct cursor *c, uint8_t *p, uint64_t n)
{
    const uint8_t *in;
    uint8_t *out;
    while (n > 0) {
        uint64_t m = cursor_next(c, n, &in, &out);
        if (m == 0)
            return;
        memcpy(p, in, m);
        p += m;
        n -= m;
    }
}

void cursor_unpack(struct cursor *c, const uint8_t *p, uint64_t n)
{
    const uint8_t *in;
    uint8_t *out;
    while (n > 0) {
        uint64_t m = cursor_next(c, n, &in, &out);
        if (m == 0)
            return;
        memcpy(out, p, m);
        p += m;
        n -= m;
    }
}

void cursor_copy(struct cursor *c, uint64_t n)
{
    const uint8_t *in;
    uint8_t *out;
    while (n > 0) {
        uint64_t m = cursor_next(c, n, &in, &out);
        if (m == 0)
            return;
        if (out && in && in != out)
            memcpy(out, in, m);
        n -= m;
    }
}

void vec_copy(const struct vec *from, const struct vec *to)
{
    struct cursor a = cursor_at(from), b = cursor_at(to);
    uint64_t left = from->n_bytes < to->n_bytes ? from->n_bytes : to->n_bytes;
    const uint8_t *in;
    uint8_t *out;
    while (left > 0) {
        uint64_t m = cursor_next(&b, left, &in, &out);
        if (m == 0)
            return;
        cursor_pack(&a, out, m);
        left -= m;
    }
}

size_t cursor_iov(const struct cursor *c,
                  int is_send,
                  struct iovec *iov,
                  size_t max_iov,
                  uint64_t max_bytes)
{
    struct cursor k = *c;
    size_t n = 0;
    while (n < max_iov && max_bytes > 0) {
        const uint8_t *in = NULL;
        uint8_t *out = NULL;
        uint64_t m = cursor_next(&k, max_bytes, &in, &out);
        if (m == 0)
            break;
        /* sendmsg() takes the iovec of a const buffer as void *: the union avoids a
         * cast */
        union {
            const uint8_t *c;
            uint8_t *m;
        } p = {.m = out};
        if (is_send)
            p.c = in;
        iov[n].iov_base = p.m;
        iov[n].iov_len = (size_t)m;
        n++;
        max_bytes -= m;
    }
    return n;
}
