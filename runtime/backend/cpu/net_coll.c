/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives over the mesh that reduce nothing.
 *
 *   broadcast  small: binomial tree; large: a chain in which everyone forwards chunk
 *              k - 1 while it receives chunk k
 *   barrier    dissemination, one byte a step
 *   the rest   everyone sends to everyone at once: it is the same number of bytes as in
 *              a ring, without its steps
 *
 * Reductions are in net_reduce.c. Called by coll.c. */
#include "runtime/backend/cpu/net.h"

#define CHAIN_CHUNK (512u << 10)

static int exchange(struct net *net,
                    uint32_t to,
                    const void *send,
                    uint64_t n_send,
                    uint32_t from,
                    void *recv,
                    uint64_t n_recv,
                    struct err *err)
{
    struct piece s = {.in = send, .n = n_send}, r = {.out = recv, .n = n_recv};
    struct vec vs = vec_of(&s, 1), vr = vec_of(&r, 1);
    struct cursor cs = cursor_at(&vs), cr = cursor_at(&vr);
    return net_xfer(net, to, &cs, n_send, from, &cr, n_recv, err);
}

int net_barrier(struct net *net, struct err *err)
{
    const uint8_t out = 0;
    uint8_t in;
    for (uint64_t d = 1; d < net->n; d *= 2) {
        uint32_t to = (uint32_t)((net->me + d) % net->n);
        uint32_t from = (uint32_t)((net->me + net->n - d) % net->n);
        int rc = exchange(net, to, &out, 1, from, &in, 1, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* --- broadcast and allgather
 * ---------------------------------------------------------------------- */

static int tree(struct net *net, const struct vec *v, uint32_t root, struct err *err)
{
    uint32_t n = net->n, rel = (net->me + n - root) % n;
    uint32_t bit = 1;
    while (bit < n && !(rel & bit))
        bit *= 2;
    if (rel != 0) { /* lowest set bit: who sends to us */
        struct cursor c = cursor_at(v), none = {0};
        uint32_t from = (rel - bit + root) % n;
        int rc = net_xfer(net, from, &none, 0, from, &c, v->n_bytes, err);
        if (rc < 0)
            return rc;
    }
    for (bit /= 2; bit > 0; bit /= 2) {
        if (rel + bit >= n)
            continue;
        struct cursor c = cursor_at(v), none = {0};
        uint32_t to = (rel + bit + root) % n;
        int rc = net_xfer(net, to, &c, v->n_bytes, to, &none, 0, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int chain(struct net *net, const struct vec *v, uint32_t root, struct err *err)
{
    uint32_t n = net->n, rel = (net->me + n - root) % n;
    uint32_t next = (net->me + 1) % n, prev = (net->me + n - 1) % n;
    struct cursor send = cursor_at(v), recv = cursor_at(v);
    bool is_first = rel == 0, is_last = rel == n - 1;
    uint64_t held = is_first ? v->n_bytes : 0; /* received so far */
    for (uint64_t sent = 0; sent < v->n_bytes || held < v->n_bytes;) {
        uint64_t rn = v->n_bytes - held, sn = held - sent;
        if (rn > CHAIN_CHUNK)
            rn = CHAIN_CHUNK;
        if (is_last)
            sent += sn, sn = 0;
        int rc = net_xfer(net, next, &send, sn, prev, &recv, rn, err);
        if (rc < 0)
            return rc;
        held += rn;
        sent += sn;
    }
    return 0;
}

int net_broadcast(struct net *net, const struct vec *v, uint32_t root, struct err *err)
{
    if (v->n_bytes == 0)
        return 0;
    return v->n_bytes <= NET_SMALL_BYTES || net->n == 2 ? tree(net, v, root, err)
                                                        : chain(net, v, root, err);
}

/* Every flow of everyone at once. */
int net_alltoallv(struct net *net,
                  const struct vec *send,
                  const struct vec *recv,
                  struct err *err)
{
    for (uint32_t j = 0; j < net->n; j++) {
        struct cursor cs = cursor_at(&send[j]), cr = cursor_at(&recv[j]);
        if (j == net->me)
            continue;
        net_send(net, j, &cs, send[j].n_bytes);
        net_recv(net, j, &cr, recv[j].n_bytes);
    }
    vec_copy(&send[net->me], &recv[net->me]);
    return net_run(net, NULL, NULL, err);
}

int net_allgather(struct net *net, const struct vec *v, struct err *err)
{
    const struct vec *own = &v[net->me];
    for (uint32_t j = 0; j < net->n; j++) {
        struct cursor cs = cursor_at(own), cr = cursor_at(&v[j]);
        if (j == net->me)
            continue;
        net_send(net, j, &cs, own->n_bytes);
        net_recv(net, j, &cr, v[j].n_bytes);
    }
    return net_run(net, NULL, NULL, err);
}

int net_gather(struct net *net, const struct vec *v, uint32_t root, struct err *err)
{
    struct cursor own = cursor_at(&v[net->me]);
    if (net->me != root)
        net_send(net, root, &own, v[net->me].n_bytes);
    for (uint32_t j = 0; j < net->n && net->me == root; j++) {
        struct cursor c = cursor_at(&v[j]);
        if (j != root)
            net_recv(net, j, &c, v[j].n_bytes);
    }
    if (net->me == root)
        cursor_copy(&own, v[root].n_bytes);
    return net_run(net, NULL, NULL, err);
}
