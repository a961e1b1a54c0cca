/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives over the mesh without a reduction.
 *
 *   broadcast  small: binomial tree; large: a chain in which each member forwards each
 *              block once it is complete and right
 *   barrier    dissemination, one byte per step
 *   allgather  while the mesh is not full: a ring, block by block
 *   all other  each member sends to all at once: the same number of bytes as in a ring,
 *              without its steps
 *
 * Reductions are in net_reduce.c. Called by coll.c. */
#include "runtime/backend/cpu/net.h"

static int net_exchange(struct net *net,
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
        int rc = net_exchange(net, to, &out, 1, from, &in, 1, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* --- broadcast; v's in is its out everywhere but on the root --- */

static int
broadcast_tree(struct net *net, const struct vec *v, uint32_t root, struct err *err)
{
    uint32_t n = net->n, rel = (net->me + n - root) % n, bit = 1;
    while (bit < n && !(rel & bit))
        bit *= 2;
    if (rel != 0) { /* the lowest set bit is the distance to our sender */
        net_queue_receive(net, (rel - bit + root) % n, v);
        int rc = net_run(net, NULL, NULL, err);
        if (rc < 0)
            return rc;
    }
    for (bit /= 2; bit > 0; bit /= 2)
        if (rel + bit < n)
            net_queue_send(net, (rel + bit + root) % n, v);
    return net_run(net, NULL, NULL, err);
}

struct relay { /* forwards what is received, block by block */
    const struct net_flow *in;
    struct net_flow *out;
    uint64_t n_passed;
};

static void pass_on(void *arg)
{
    struct relay *r = arg;
    r->out->left += r->in->done - r->n_passed;
    r->n_passed = r->in->done;
}

static int
broadcast_chain(struct net *net, const struct vec *v, uint32_t root, struct err *err)
{
    uint32_t n = net->n, rel = (net->me + n - root) % n;
    uint32_t next = (net->me + 1) % n, prev = (net->me + n - 1) % n;
    struct relay r = {&net->peers[prev].recv, &net->peers[next].send, 0};
    if (rel > 0)
        net_queue_receive(net, prev, v);
    if (rel < n - 1)
        net_queue_send(net, next, v);
    if (rel == 0 || rel == n - 1)
        return net_run(net, NULL, NULL, err);
    r.out->left = 0;
    return net_run(net, pass_on, &r, err);
}

int net_broadcast(struct net *net, const struct vec *v, uint32_t root, struct err *err)
{
    if (v->n_bytes == 0)
        return 0;
    return v->n_bytes <= NET_SMALL_BYTES || net->n == 2
               ? broadcast_tree(net, v, root, err)
               : broadcast_chain(net, v, root, err);
}

/* --- all to all --- */

/* All flows of all members at once. */
int net_alltoallv(struct net *net,
                  const struct vec *send,
                  const struct vec *recv,
                  struct err *err)
{
    int rc = net_complete(net, err);
    if (rc < 0)
        return rc;
    for (uint32_t j = 0; j < net->n; j++) {
        struct cursor cs = cursor_at(&send[j]), cr = cursor_at(&recv[j]);
        if (j == net->me)
            continue;
        net_lead(net, j, send[j].n_bytes, recv[j].n_bytes);
        net_send(net, j, &cs, send[j].n_bytes);
        net_recv(net, j, &cr, recv[j].n_bytes);
    }
    vec_copy(&send[net->me], &recv[net->me]);
    return net_run(net, NULL, NULL, err);
}

/* Step k: the block of the member k before us is sent to the next member. */
static int allgather_ring(struct net *net, const struct vec *v, struct err *err)
{
    uint32_t n = net->n, me = net->me, next = (me + 1) % n, prev = (me + n - 1) % n;
    for (uint32_t k = 0; k < n - 1; k++) {
        net_queue_receive(net, prev, &v[(me + n - k - 1) % n]);
        net_queue_send(net, next, &v[(me + n - k) % n]);
        net->peers[next].send.is_out = k > 0; /* it has arrived there */
        int rc = net_run(net, NULL, NULL, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int net_allgather(struct net *net, const struct vec *v, struct err *err)
{
    const struct vec *own = &v[net->me];
    if (net->rest)
        return allgather_ring(net, v, err);
    for (uint32_t j = 0; j < net->n; j++) {
        struct cursor cs = cursor_at(own), cr = cursor_at(&v[j]);
        if (j == net->me)
            continue;
        net_lead(net, j, own->n_bytes, v[j].n_bytes);
        net_send(net, j, &cs, own->n_bytes);
        net_recv(net, j, &cr, v[j].n_bytes);
    }
    return net_run(net, NULL, NULL, err);
}

int net_gather(struct net *net, const struct vec *v, uint32_t root, struct err *err)
{
    struct cursor own = cursor_at(&v[net->me]);
    int rc = net_complete(net, err);
    if (rc < 0)
        return rc;
    if (net->me != root)
        net_queue_send(net, root, &v[net->me]);
    for (uint32_t j = 0; j < net->n && net->me == root; j++)
        if (j != root)
            net_queue_receive(net, j, &v[j]);
    if (net->me == root)
        cursor_copy(&own, v[root].n_bytes);
    return net_run(net, NULL, NULL, err);
}
