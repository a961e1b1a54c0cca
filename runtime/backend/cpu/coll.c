/* SPDX-License-Identifier: Apache-2.0 */
/* Runs one batch: from its items to the transports.
 *
 *   all on one host     shm only
 *   one rank a host     net only
 *   mixed               three steps: shm on each host, net among the leaders (lowest
 *                       ranks) of the hosts, shm on each host
 *
 * What the steps move:
 *
 *                   1. shm                 2. net, leaders    3. shm
 *   allreduce       sum of the host        sum of all hosts   broadcast
 *   reduce          sum of the host        to root's leader   to root
 *   broadcast       on root's host         to all leaders     on the other hosts
 *   allgather       blocks of the host     blocks by host     blocks of other hosts
 *   gather          blocks to the leader   to root's leader   to root
 *   reduce-scatter  sum of the host        parts by host      to each member its part
 *   alltoall        local blocks, and      blocks by host     incoming blocks
 *                   outgoing to the leader
 *   sendrecv        of two members, by either; transfer.c
 *   barrier         barrier                barrier            barrier
 *
 * Data that passes through a leader is in memory that the operation allocates and
 * frees: never more than its host's members send and receive together.
 *
 * Items become pieces (vec.h); on one host nothing else is allocated per batch once the
 * piece table has grown. This file: allreduce, reduce, broadcast, barrier, and the
 * choice among all collectives. Called by cpu.c, subset.c. */
#include "runtime/backend/cpu/coll.h"

#include <errno.h>

#include "runtime/base/mem.h"

/* --- allreduce and reduce --- */

static int lay_out_items(struct cpu *c,
                         const struct batch *b,
                         bool has_out,
                         struct vec *ret,
                         struct err *err)
{
    int rc = coll_room(c, b->n_items, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < b->n_items; i++)
        c->pieces[i] = (struct piece){.in = b->items[i].in,
                                      .out = has_out ? b->items[i].out : NULL,
                                      .n = b->items[i].count * dtype_size(b->dtype)};
    *ret = vec_of(c->pieces, b->n_items);
    return 0;
}

static int allreduce_mixed(struct cpu *c,
                           struct vec *v,
                           const struct reduction *r,
                           struct err *err)
{
    struct reduction outer;
    int rc = coll_reduce_on_host(c, v, r, &outer, err);
    if (coll_reduces_on_host(c, r))
        coll_in_is_out(c->pieces, v->n);
    if (rc == 0 && coll_is_leader(c))
        rc = net_allreduce(&c->net, v, &outer, err);
    coll_in_is_out(c->pieces, v->n);
    if (rc == 0 && c->n_local > 1)
        rc = shm_broadcast(&c->shm, v, 0, err);
    return rc;
}

static int coll_allreduce(struct cpu *c, const struct batch *b, struct err *err)
{
    struct reduction r;
    struct vec v;
    if (b->op == OP_ADASUM)
        return coll_adasum(c, b, err);
    int rc = coll_reduction(c, b, &r, err);
    if (rc == 0)
        rc = lay_out_items(c, b, true, &v, err);
    if (rc != 0)
        return rc;
    if (c->env.size == 1)
        coll_scale(&v, &r);
    else if (c->n_hosts == 1)
        rc = shm_allreduce(&c->shm, &v, &r, SHM_ALL, err);
    else
        rc = allreduce_mixed(c, &v, &r, err);
    return rc;
}

/* The leader's part of the host's result goes into root's output when it is root, else
 * to scratch; from there it is passed on. */
static int reduce_mixed(struct cpu *c,
                        const struct batch *b,
                        struct vec *v,
                        const struct reduction *r,
                        struct err *err)
{
    uint32_t home = c->host_of[b->root], to = c->local_of[b->root];
    bool passes = coll_is_leader(c) && coll_reduces_on_host(c, r);
    AUTOFREE uint8_t *scratch = NULL;
    struct reduction outer;
    if (passes && b->root != c->env.rank) {
        scratch = coll_scratch(v->n_bytes, "reduce", err);
        if (!scratch)
            return -ENOMEM;
        uint8_t *p = scratch;
        for (size_t i = 0; i < v->n; p += c->pieces[i++].n)
            c->pieces[i].out = p;
    }
    int rc = coll_reduce_on_host(c, v, r, &outer, err);
    if (passes)
        coll_in_is_out(c->pieces, v->n);
    if (rc == 0 && coll_is_leader(c))
        rc = net_reduce(&c->net, v, home, &outer, err);
    if (rc < 0 || c->host != home || to == 0)
        return rc;
    return coll_pass(c, 0, to, v, err);
}

static int check_root(const struct cpu *c, const struct batch *b, struct err *err)
{
    if (b->root >= c->env.size)
        return err_set(err, -EINVAL, "batch: %s from root %u of %u members",
                       collective_name(b->coll), b->root, c->env.size);
    return 0;
}

static int coll_reduce(struct cpu *c, const struct batch *b, struct err *err)
{
    struct reduction r;
    struct vec v;
    if (b->op == OP_ADASUM)
        return coll_adasum(c, b, err);
    int rc = coll_reduction(c, b, &r, err);
    if (rc == 0)
        rc = lay_out_items(c, b, b->root == c->env.rank, &v, err);
    if (rc != 0)
        return rc;
    if (c->env.size == 1)
        coll_scale(&v, &r);
    else if (c->n_hosts == 1)
        rc = shm_allreduce(&c->shm, &v, &r, b->root, err);
    else
        rc = reduce_mixed(c, b, &v, &r, err);
    return rc;
}

/* --- broadcast --- */

static int coll_broadcast(struct cpu *c, const struct batch *b, struct err *err)
{
    int rc = coll_room(c, b->n_items, err);
    if (rc < 0)
        return rc;
    bool is_root = b->root == c->env.rank;
    for (size_t i = 0; i < b->n_items; i++)
        c->pieces[i] = (struct piece){.in = is_root ? b->items[i].in : b->items[i].out,
                                      .out = b->items[i].out,
                                      .n = b->items[i].count * dtype_size(b->dtype)};
    struct vec v = vec_of(c->pieces, b->n_items);
    uint32_t home = c->host_of[b->root];
    if (c->host == home && c->n_local > 1)
        rc = shm_broadcast(&c->shm, &v, c->local_of[b->root], err);
    else if (is_root) {
        struct cursor k = cursor_at(&v);
        cursor_copy(&k, v.n_bytes);
    }
    if (rc == 0 && c->n_hosts > 1 && coll_is_leader(c))
        rc = net_broadcast(&c->net, &v, home, err);
    if (rc == 0 && c->host != home && c->n_local > 1)
        rc = shm_broadcast(&c->shm, &v, 0, err);
    return rc;
}

/* --- barrier --- */

static int coll_barrier(struct cpu *c, struct err *err)
{
    int rc = c->n_local > 1 ? shm_barrier(&c->shm, err) : 0;
    if (rc < 0 || c->n_hosts == 1)
        return rc;
    if (coll_is_leader(c))
        rc = net_barrier(&c->net, err);
    if (rc == 0 && c->n_local > 1)
        rc = shm_barrier(&c->shm, err);
    return rc;
}

static bool has_root(enum collective c)
{
    return c == COLL_BROADCAST || c == COLL_REDUCE || c == COLL_GATHER
           || c == COLL_SENDRECV;
}

static int coll_dispatch(struct cpu *c, const struct batch *b, struct err *err)
{
    if (b->coll != COLL_BARRIER && dtype_size(b->dtype) == 0)
        return err_set(err, -EINVAL, "batch: dtype %d is unknown", (int)b->dtype);
    int rc = has_root(b->coll) ? check_root(c, b, err) : 0;
    if (rc < 0)
        return rc;
    switch (b->coll) {
    case COLL_ALLREDUCE:
        return coll_allreduce(c, b, err);
    case COLL_ALLGATHER:
        return coll_allgather(c, b, err);
    case COLL_BROADCAST:
        return coll_broadcast(c, b, err);
    case COLL_SENDRECV:
        return transfer_begin(c, b, err);
    case COLL_BARRIER:
        return coll_barrier(c, err);
    case COLL_ALLTOALL:
        return coll_alltoall(c, b, err);
    case COLL_REDUCESCATTER:
        return coll_reduce_scatter(c, b, err);
    case COLL_REDUCE:
        return coll_reduce(c, b, err);
    case COLL_GATHER:
        return coll_gather(c, b, err);
    case COLL_JOIN:
    case COLL_SET_ADD:
    case COLL_SET_REMOVE:
    case COLL_REGISTER:
    case COLL_PROBE:
    case COLL_COUNT:
        break;
    }
    return err_set(err, -EINVAL, "batch: %s is not supported",
                   collective_name(b->coll));
}

int coll_run(struct cpu *c, const struct batch *batch, struct err *err)
{
    if (c->broken.code != 0)
        return err_set(err, -EPIPE, "%s", c->broken.text);
    if (c->agree.phase != AGREE_NONE)
        return err_set(err, -EBUSY, "post while agreement %u is not done",
                       c->agree.seq);
    if (c->transfer.is_active)
        return err_set(err, -EBUSY, "post while a transfer is not done");
    struct err why;
    err_init(&why);
    c->net.subject = (struct block_subject){++c->n_batches, (uint8_t)batch->coll};
    int rc = coll_dispatch(c, batch, &why);
    return rc < 0 ? cpu_break(c, rc, &why, err) : 0;
}
