/* SPDX-License-Identifier: Apache-2.0 */
/* One batch, from its items to the transports.
 *
 *   all on one host     shm only
 *   one rank a host     net only
 *   mixed               allreduce: shm reduce to the leader, net among leaders, shm
 * broadcast broadcast: shm on the root's host, net, shm on the others allgather: shm,
 * net (a host's blocks together), shm broadcast of the rest barrier:   shm, net, shm
 *
 * Items become pieces (vec.h); nothing is allocated per batch once the piece table has
 * grown. Called by cpu.c. */
#include <errno.h>

#include "runtime/backend/cpu/cpu.h"
#include "runtime/base/mem.h"

#define MAX_PIECES (1u << 26)

static int make_room(struct cpu *c, size_t n, struct err *err)
{
    if (n <= c->cap_pieces)
        return 0;
    void *p =
        n > MAX_PIECES ? NULL : mem_realloc_array(c->pieces, n, sizeof *c->pieces);
    if (p == NULL)
        return err_set(err, -ENOMEM, "no memory for a batch of %zu pieces", n);
    c->pieces = p;
    c->cap_pieces = n;
    return 0;
}

static bool is_leader(const struct cpu *c)
{
    return c->local == 0;
}

/* The result is where it belongs; from now on it is what we pass on. */
static void in_is_out(struct vec *v, struct piece *p)
{
    for (size_t i = 0; i < v->n; i++)
        p[i].in = p[i].out;
}

/* --- allreduce
 * -----------------------------------------------------------------------------------
 */

static void scale_alone(const struct vec *v, const struct reduction *r)
{
    struct finish pre = {r->prescale, 1};
    for (size_t i = 0; i < v->n; i++) {
        const void *src = v->v[i].in;
        size_t n = v->v[i].n / r->k->elem_bytes;
        r->k->sum(v->v[i].out, NULL, &src, 1, n, &pre);
        src = v->v[i].out;
        if (r->finish.factor != 1.0)
            r->k->sum(v->v[i].out, NULL, &src, 1, n, &r->finish);
    }
}

static int allreduce_mixed(struct cpu *c,
                           struct vec *v,
                           const struct reduction *r,
                           struct err *err)
{
    struct reduction inner = *r, outer = *r;
    inner.finish = FINISH_NONE;
    int rc = 0;
    if (c->n_local > 1) {
        rc = shm_allreduce(&c->shm, v, &inner, true, err);
        in_is_out(v, c->pieces);
        outer.prescale = 1.0;
    }
    if (rc == 0 && is_leader(c))
        rc = net_allreduce(&c->net, v, &outer, err);
    in_is_out(v, c->pieces);
    if (rc == 0 && c->n_local > 1)
        rc = shm_broadcast(&c->shm, v, 0, err);
    return rc;
}

static int allreduce(struct cpu *c, const struct batch *b, struct err *err)
{
    struct reduction r = {
        .k = kernel_for(b->op, b->dtype, c->is_wide),
        .prescale = b->prescale,
        .finish = finish_of(b->dtype, b->op, b->postscale, c->env.size),
    };
    if (r.k == NULL)
        return err_set(err, -EINVAL, "allreduce: %s of %s is not supported",
                       reduce_op_name(b->op), dtype_name(b->dtype));
    int rc = make_room(c, b->n_items, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < b->n_items; i++)
        c->pieces[i] = (struct piece){.in = b->items[i].in,
                                      .out = b->items[i].out,
                                      .n = b->items[i].count * r.k->elem_bytes};
    struct vec v = vec_of(c->pieces, b->n_items);
    if (c->env.size == 1)
        scale_alone(&v, &r);
    else if (c->n_hosts == 1)
        rc = shm_allreduce(&c->shm, &v, &r, false, err);
    else
        rc = allreduce_mixed(c, &v, &r, err);
    return rc;
}

/* --- broadcast
 * -----------------------------------------------------------------------------------
 */

static int broadcast(struct cpu *c, const struct batch *b, struct err *err)
{
    if (b->root >= c->env.size)
        return err_set(err, -EINVAL, "broadcast: root %u of %u", b->root, c->env.size);
    int rc = make_room(c, b->n_items, err);
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
    if (rc == 0 && c->n_hosts > 1 && is_leader(c))
        rc = net_broadcast(&c->net, &v, home, err);
    if (rc == 0 && c->host != home && c->n_local > 1)
        rc = shm_broadcast(&c->shm, &v, 0, err);
    return rc;
}

/* --- allgather
 * -----------------------------------------------------------------------------------
 */

/* One piece a rank and item, ordered host by host, so that a host's block is
 * contiguous. */
static int lay_out_gather(struct cpu *c, const struct batch *b, struct err *err)
{
    size_t n = b->n_items, size = dtype_size(b->dtype);
    int rc = make_room(c, n * c->env.size, err);
    if (rc < 0)
        return rc;
    AUTOFREE size_t *row = mem_calloc(c->env.size, sizeof *row); /* of a rank */
    if (row == NULL)
        return err_set(err, -ENOMEM, "no memory");
    for (uint32_t k = 0; k < c->env.size; k++)
        row[c->order[k]] = k * n;
    for (size_t i = 0; i < n; i++) {
        const struct batch_item *it = &b->items[i];
        uint8_t *out = it->out;
        for (uint32_t r = 0; r < c->env.size; r++) {
            uint64_t bytes = it->counts[r] * size;
            c->pieces[row[r] + i] = (struct piece){
                .in = r == c->env.rank ? it->in : out, .out = out, .n = bytes};
            if (out != NULL)
                out += bytes;
        }
    }
    return 0;
}

static struct vec rows(const struct cpu *c, size_t n_items, uint32_t from, uint32_t to)
{
    return vec_of(c->pieces + from * n_items, (to - from) * n_items);
}

static int allgather(struct cpu *c, const struct batch *b, struct err *err)
{
    size_t n = b->n_items;
    int rc = lay_out_gather(c, b, err);
    if (rc < 0)
        return rc;
    uint32_t start = c->host_start[c->host], end = c->host_start[c->host + 1];
    uint32_t mine = start + c->local;
    struct vec own = rows(c, n, mine, mine + 1);
    if (c->n_local > 1) {
        for (uint32_t k = start; k < end; k++)
            c->vecs[k - start] = rows(c, n, k, k + 1);
        rc = shm_allgather(&c->shm, c->vecs, err);
    } else {
        struct cursor k = cursor_at(&own);
        cursor_copy(&k, own.n_bytes);
    }
    if (rc < 0 || c->n_hosts == 1)
        return rc;
    in_is_out(&own, c->pieces + mine * n);
    if (is_leader(c)) {
        for (uint32_t h = 0; h < c->n_hosts; h++)
            c->vecs[h] = rows(c, n, c->host_start[h], c->host_start[h + 1]);
        rc = net_allgather(&c->net, c->vecs, err);
    }
    struct vec before = rows(c, n, 0, start), after = rows(c, n, end, c->env.size);
    if (rc == 0 && c->n_local > 1)
        rc = shm_broadcast(&c->shm, &before, 0, err);
    if (rc == 0 && c->n_local > 1)
        rc = shm_broadcast(&c->shm, &after, 0, err);
    return rc;
}

/* --- barrier
 * ---------------------------------------------------------------------------------------
 */

static int barrier(struct cpu *c, struct err *err)
{
    int rc = c->n_local > 1 ? shm_barrier(&c->shm, err) : 0;
    if (rc < 0 || c->n_hosts == 1)
        return rc;
    if (is_leader(c))
        rc = net_barrier(&c->net, err);
    if (rc == 0 && c->n_local > 1)
        rc = shm_barrier(&c->shm, err);
    return rc;
}

int coll_run(struct cpu *c, const struct batch *b, struct err *err)
{
    if (b->coll != COLL_BARRIER && dtype_size(b->dtype) == 0)
        return err_set(err, -EINVAL, "batch: dtype %d is unknown", (int)b->dtype);
    switch (b->coll) {
    case COLL_ALLREDUCE:
        return allreduce(c, b, err);
    case COLL_ALLGATHER:
        return allgather(c, b, err);
    case COLL_BROADCAST:
        return broadcast(c, b, err);
    case COLL_BARRIER:
        return barrier(c, err);
    case COLL_ALLTOALL:
    case COLL_REDUCESCATTER:
    case COLL_REDUCE:
    case COLL_GATHER:
    case COLL_JOIN:
    case COLL_SET_ADD:
    case COLL_SET_REMOVE:
    case COLL_COUNT:
        break;
    }
    return err_set(err, -EINVAL, "batch: %s is not carried out here",
                   collective_name(b->coll));
}
