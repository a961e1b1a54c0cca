/* SPDX-License-Identifier: Apache-2.0 */
/* The steps that several collectives have in common: room for pieces, rows of the piece
 * table, memory for data in transfer, a reduction within each host.
 *
 * Called by coll.c, coll_gather.c, coll_scatter.c, coll_alltoall.c, adasum.c. */
#include <errno.h>

#include "runtime/backend/cpu/coll.h"
#include "runtime/base/mem.h"

#define MAX_PIECES (1u << 26)

int coll_room(struct cpu *c, size_t n, struct err *err)
{
    if (n <= c->cap_pieces)
        return 0;
    void *p =
        n > MAX_PIECES ? NULL : mem_realloc_array(c->pieces, n, sizeof(*c->pieces));
    if (!p)
        return err_set(err, -ENOMEM, "no memory for a batch of %zu pieces", n);
    c->pieces = p;
    c->cap_pieces = n;
    return 0;
}

uint8_t *coll_scratch(uint64_t n, const char *what, struct err *err)
{
    uint8_t *p = n > SIZE_MAX ? NULL : mem_alloc((size_t)n);
    if (!p)
        (void)err_set(err, -ENOMEM, "%s: no memory for %llu bytes in transfer", what,
                      (unsigned long long)n);
    return p;
}

void coll_in_is_out(struct piece *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i].in = p[i].out;
}

struct vec coll_rows(const struct cpu *c, size_t n_items, uint32_t from, uint32_t to)
{
    return vec_of(c->pieces + from * n_items, (to - from) * n_items);
}

int coll_pass(
    struct cpu *c, uint32_t from, uint32_t to, const struct vec *v, struct err *err)
{
    struct vec *send = c->vecs, *recv = c->vecs + c->env.size;
    for (uint32_t j = 0; j < c->n_local; j++)
        send[j] = recv[j] = vec_of(NULL, 0);
    if (from == to)
        return 0;
    if (c->local == from)
        send[to] = *v;
    if (c->local == to)
        recv[from] = *v;
    return shm_alltoall(&c->shm, send, recv, err);
}

int coll_reduction(const struct cpu *c,
                   const struct batch *b,
                   struct reduction *ret,
                   struct err *err)
{
    *ret = (struct reduction){
        .k = kernel_for(b->op, b->dtype, c->is_wide),
        .prescale = b->prescale,
        .finish = finish_of(b->dtype, b->op, b->postscale, c->env.size),
    };
    if (!ret->k)
        return err_set(err, -EINVAL, "batch: %s with %s of %s is not supported",
                       collective_name(b->coll), reduce_op_name(b->op),
                       dtype_name(b->dtype));
    return 0;
}

void coll_scale(const struct vec *v, const struct reduction *r)
{
    struct finish pre = {r->prescale, 1};
    for (size_t i = 0; i < v->n; i++) {
        const void *src = v->v[i].in;
        size_t n = v->v[i].n / r->k->elem_bytes;
        r->k->fold(v->v[i].out, NULL, &src, 1, n, &pre);
        src = v->v[i].out;
        if (r->finish.factor != 1.0 || r->finish.divisor != 1)
            r->k->fold(v->v[i].out, NULL, &src, 1, n, &r->finish);
    }
}

bool coll_reduces_on_host(const struct cpu *c, const struct reduction *r)
{
    bool is_mixed = c->env.size > c->n_hosts;
    return c->n_local > 1 || (is_mixed && r->prescale != 1.0);
}

int coll_reduce_on_host(struct cpu *c,
                        const struct vec *v,
                        const struct reduction *r,
                        struct reduction *ret,
                        struct err *err)
{
    struct reduction inner = *r;
    *ret = *r;
    if (!coll_reduces_on_host(c, r))
        return 0;
    inner.finish = FINISH_NONE;
    ret->prescale = 1.0;
    if (c->n_local > 1)
        return shm_allreduce(&c->shm, v, &inner, 0, err);
    coll_scale(v, &inner);
    return 0;
}
