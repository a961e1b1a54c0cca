/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives over the mesh.
 *
 *   allreduce  up to NET_SMALL_BYTES: recursive doubling (log2 n exchanges; members
 * beyond the largest power of two fold into a partner first and get the result last).
 * Above: ring reduce-scatter, then ring allgather. Both leave the same bits on every
 * member. broadcast  small: binomial tree; large: a chain in which everyone forwards
 * chunk k - 1 while it receives chunk k. allgather  ring: n - 1 steps, each passes on
 * the block that came last. barrier    dissemination, one byte a step.
 *
 * Many small tensors are packed into `stage` and reduced together; a large one is
 * reduced in its own output, without a copy. 16-bit floats travel as 16 bits and are
 * rounded at each hop, as in NCCL. Called by coll.c. */
#include <string.h>

#include "runtime/backend/cpu/net.h"

#define CHAIN_CHUNK (512u << 10)

static const struct finish no_finish = FINISH_NONE;

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

/* --- allreduce, in place on a flat buffer of n_bytes
 * --------------------------------------------- */

static uint32_t power_of_two_below(uint32_t n)
{
    uint32_t p = 1;
    while (p <= n / 2)
        p *= 2;
    return p;
}

static void finish_all(uint8_t *buf, uint64_t n_bytes, const struct reduction *r)
{
    const void *src = buf;
    if (r->finish.factor != 1.0 || r->finish.divisor != 1)
        r->k->sum(buf, NULL, &src, 1, n_bytes / r->k->elem_bytes, &r->finish);
}

static int doubling(struct net *net,
                    uint8_t *buf,
                    uint64_t n_bytes,
                    const struct reduction *r,
                    struct err *err)
{
    uint32_t p2 = power_of_two_below(net->n), me = net->me;
    bool folds = me >= p2;
    int rc = 0;
    if (folds)
        rc = exchange(net, me - p2, buf, n_bytes, me - p2, NULL, 0, err);
    else if (me + p2 < net->n)
        rc = net_xfer_sum(net, me + p2, NULL, 0, me + p2, buf, n_bytes, r->k, err);
    for (uint32_t d = 1; d < p2 && !folds && rc == 0; d *= 2) {
        /* not in place: the sum may only change what has been sent */
        const void *src[2] = {buf, net->stage};
        rc = exchange(net, me ^ d, buf, n_bytes, me ^ d, net->stage, n_bytes, err);
        if (rc == 0)
            r->k->sum(buf, NULL, src, 2, n_bytes / r->k->elem_bytes, &no_finish);
    }
    if (rc < 0)
        return rc;
    if (folds)
        return exchange(net, me - p2, NULL, 0, me - p2, buf, n_bytes, err);
    finish_all(buf, n_bytes, r);
    if (me + p2 < net->n)
        rc = exchange(net, me + p2, buf, n_bytes, me + p2, NULL, 0, err);
    return rc;
}

/* Segment i of the ring: [*ret_off, *ret_off + return), whole elements. */
static uint64_t segment(
    const struct net *net, uint64_t n_bytes, size_t elem, uint32_t i, uint64_t *ret_off)
{
    uint64_t count = n_bytes / elem;
    uint64_t each = (count + net->n - 1) / net->n;
    uint64_t from = i * each < count ? i * each : count;
    uint64_t to = from + each < count ? from + each : count;
    *ret_off = from * elem;
    return (to - from) * elem;
}

static int ring(struct net *net,
                uint8_t *buf,
                uint64_t n_bytes,
                const struct reduction *r,
                struct err *err)
{
    uint32_t n = net->n, me = net->me, next = (me + 1) % n, prev = (me + n - 1) % n;
    size_t elem = r->k->elem_bytes;
    uint64_t so, ro, sn, rn;
    for (uint32_t s = 0; s + 1 < n; s++) {
        sn = segment(net, n_bytes, elem, (me + n - s) % n, &so);
        rn = segment(net, n_bytes, elem, (me + 2 * n - s - 1) % n, &ro);
        int rc = net_xfer_sum(net, next, buf + so, sn, prev, buf + ro, rn, r->k, err);
        if (rc < 0)
            return rc;
    }
    sn = segment(net, n_bytes, elem, next, &so); /* complete here now */
    finish_all(buf + so, sn, r);
    for (uint32_t s = 0; s + 1 < n; s++) {
        sn = segment(net, n_bytes, elem, (me + 1 + n - s) % n, &so);
        rn = segment(net, n_bytes, elem, (me + n - s) % n, &ro);
        int rc = exchange(net, next, buf + so, sn, prev, buf + ro, rn, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int allreduce_flat(struct net *net,
                          uint8_t *buf,
                          uint64_t n_bytes,
                          const struct reduction *r,
                          struct err *err)
{
    /* two members send the same bytes either way: once is better than twice */
    uint64_t small = net->n == 2 ? NET_SMALL_PAIR_BYTES : NET_SMALL_BYTES;
    return n_bytes <= small ? doubling(net, buf, n_bytes, r, err)
                            : ring(net, buf, n_bytes, r, err);
}

/* dst = prescale * src. */
static void
load(uint8_t *dst, const uint8_t *src, uint64_t n, const struct reduction *r)
{
    struct finish f = {r->prescale, 1};
    const void *s = src;
    if (r->prescale != 1.0)
        r->k->sum(dst, NULL, &s, 1, n / r->k->elem_bytes, &f);
    else if (dst != src)
        memcpy(dst, src, n);
}

/* Several tensors that together fit the upper half of stage (doubling receives in the
 * lower). */
static int allreduce_packed(struct net *net,
                            const struct piece *v,
                            size_t n,
                            uint64_t n_bytes,
                            const struct reduction *r,
                            struct err *err)
{
    uint8_t *buf = net->stage + NET_STAGE_BYTES / 2, *p = buf;
    for (size_t i = 0; i < n; p += v[i++].n)
        load(p, v[i].in, v[i].n, r);
    int rc = allreduce_flat(net, buf, n_bytes, r, err);
    p = buf;
    for (size_t i = 0; i < n && rc == 0; p += v[i++].n)
        memcpy(v[i].out, p, v[i].n);
    return rc;
}

int net_allreduce(struct net *net,
                  const struct vec *v,
                  const struct reduction *r,
                  struct err *err)
{
    const uint64_t room = NET_STAGE_BYTES / 2;
    int rc = 0;
    for (size_t i = 0, j; i < v->n && rc == 0; i = j) {
        uint64_t n_bytes = v->v[i].n;
        for (j = i + 1; j < v->n && n_bytes + v->v[j].n <= room; j++)
            n_bytes += v->v[j].n;
        if (n_bytes == 0)
            continue;
        if (j == i + 1) {
            load(v->v[i].out, v->v[i].in, n_bytes, r);
            rc = allreduce_flat(net, v->v[i].out, n_bytes, r, err);
        } else {
            rc = allreduce_packed(net, v->v + i, j - i, n_bytes, r, err);
        }
    }
    return rc;
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

int net_allgather(struct net *net, const struct vec *v, struct err *err)
{
    uint32_t n = net->n, next = (net->me + 1) % n, prev = (net->me + n - 1) % n;
    for (uint32_t s = 0; s + 1 < n; s++) {
        const struct vec *out = &v[(net->me + n - s) % n];
        const struct vec *in = &v[(net->me + 2 * n - s - 1) % n];
        struct cursor cs = cursor_at(out), cr = cursor_at(in);
        int rc = net_xfer(net, next, &cs, out->n_bytes, prev, &cr, in->n_bytes, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}
