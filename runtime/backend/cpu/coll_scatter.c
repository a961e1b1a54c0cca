/* SPDX-License-Identifier: Apache-2.0 */
/* Reduce-scatter with uneven parts.
 *
 * The piece table has one row per member, ordered host by host: the part of each item
 * that this member receives. On several hosts: the host's whole sum is collected at its
 * leader, in scratch; the leaders reduce-scatter by host, each into its own host's part
 * of that scratch; each member takes its part from there. Where every host has one
 * member, rows are passed to the net as they are.
 *
 * Called by coll.c. */
#include <errno.h>
#include <string.h>

#include "runtime/backend/cpu/coll.h"
#include "runtime/base/mem.h"

static int scatter_lay_out(struct cpu *c, const struct batch *b, struct err *err)
{
    size_t n = b->n_items, size = dtype_size(b->dtype);
    int rc = coll_room(c, n * c->env.size, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < n; i++) {
        const struct batch_item *it = &b->items[i];
        const uint8_t *in = it->in;
        for (uint32_t r = 0; r < c->env.size; r++) {
            uint64_t bytes = it->counts[r] * size;
            c->pieces[coll_place(c, r) * n + i] = (struct piece){
                .in = in, .out = r == c->env.rank ? it->out : NULL, .n = bytes};
            if (in)
                in += bytes;
        }
    }
    return 0;
}

static void scatter_host_rows(struct cpu *c, size_t n)
{
    for (uint32_t h = 0; h < c->n_hosts; h++)
        c->vecs[h] = coll_rows(c, n, c->host_start[h], c->host_start[h + 1]);
}

/* Each local member's part of the host's result, from the leader's rows. */
static int scatter_distribute(struct cpu *c, const struct batch *b, struct err *err)
{
    size_t n = b->n_items;
    uint32_t start = c->host_start[c->host], mine = start + c->local;
    struct vec *send = c->vecs, *recv = c->vecs + c->env.size;
    for (uint32_t j = 0; j < c->n_local; j++) {
        bool gives = coll_is_leader(c) && j > 0;
        send[j] = gives ? coll_rows(c, n, start + j, start + j + 1) : vec_of(NULL, 0);
        recv[j] = vec_of(NULL, 0);
    }
    if (!coll_is_leader(c))
        recv[0] = coll_rows(c, n, mine, mine + 1);
    for (size_t i = 0; i < n && coll_is_leader(c); i++) {
        const struct piece *own = &c->pieces[mine * n + i];
        if (own->n > 0)
            memcpy(b->items[i].out, own->in, own->n);
    }
    return c->n_local > 1 ? shm_alltoall(&c->shm, send, recv, err) : 0;
}

/* Some hosts have several members. */
static int scatter_run_mixed(struct cpu *c,
                             const struct batch *b,
                             const struct reduction *r,
                             struct err *err)
{
    size_t n = b->n_items, n_pieces = n * c->env.size;
    struct vec all = vec_of(c->pieces, n_pieces);
    AUTOFREE uint8_t *scratch = NULL;
    struct reduction outer;
    if (coll_is_leader(c)) {
        scratch = coll_scratch(all.n_bytes, "reduce-scatter", err);
        if (!scratch)
            return -ENOMEM;
        uint8_t *p = scratch;
        for (size_t i = 0; i < n_pieces; p += c->pieces[i++].n)
            c->pieces[i].out = p;
    }
    int rc = coll_reduce_on_host(c, &all, r, &outer, err);
    if (rc == 0 && coll_is_leader(c)) {
        if (coll_reduces_on_host(c, r))
            coll_in_is_out(c->pieces, n_pieces);
        scatter_host_rows(c, n);
        rc = net_reduce_scatter(&c->net, c->vecs, &outer, err);
        coll_in_is_out(c->pieces, n_pieces);
    }
    return rc < 0 ? rc : scatter_distribute(c, b, err);
}

int coll_reduce_scatter(struct cpu *c, const struct batch *b, struct err *err)
{
    size_t n = b->n_items;
    struct reduction r;
    int rc = coll_reduction(c, b, &r, err);
    if (rc == 0)
        rc = scatter_lay_out(c, b, err);
    if (rc < 0)
        return rc;
    if (c->env.size == 1) {
        struct vec v = vec_of(c->pieces, n);
        coll_scale(&v, &r);
        return 0;
    }
    if (c->n_hosts == 1) {
        for (uint32_t j = 0; j < c->n_local; j++)
            c->vecs[j] = coll_rows(c, n, j, j + 1);
        return shm_reduce_scatter(&c->shm, c->vecs, &r, err);
    }
    if (c->env.size > c->n_hosts)
        return scatter_run_mixed(c, b, &r, err);
    scatter_host_rows(c, n);
    return net_reduce_scatter(&c->net, c->vecs, &r, err);
}
