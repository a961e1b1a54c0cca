/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions over the mesh.
 *
 * Every element is summed in one place, from all members' values at once, in member
 * order: its bits do not depend on its position in a batch, the size of the batch or
 * the algorithm below. 16-bit floats are sent as 16 bits, summed in float32 and rounded
 * once.
 *
 *   whole    each member sends all its data to all and sums all: one message time. For
 *            small vectors of up to FEW_HOSTS members.
 *   round    more members and small: the same by Bruck's allgather, log2 n messages.
 *   parts    member j sums part j, which all others send to it (reduce-scatter), then
 *            sends it to all others (allgather), or to the root only.
 *   root     small reduce: the root sums everything.
 *
 * All but `round` share one state machine: member j owns a part of part[j] bytes and
 * receives each member's contribution to it, in chunks, each into a slot of its own;
 * when chunk c of all has arrived it is summed and, in `parts`, sent. There are two
 * slots per member, so chunk c is received once chunk c - 2 is summed. The stream from
 * i to j is, in this order,
 *
 *     R0 R1 G0 R2 G1 ... R(K-1) G(K-2) G(K-1)
 *
 * R(c) being i's contribution to chunk c of j's part, G(c) chunk c of i's part, summed;
 * both sides know all lengths.
 *
 * No deadlock: the sum of c needs R(c) of all; R(c) waits in its stream for G(c - 2) at
 * most, which is sent when c - 2 is summed, and is received when c - 2 is summed. So
 * everything depends on smaller c only.
 *
 * In place (out == in): G(c) of j overwrites what we sent as R(c) to j, and j had to
 * receive that first. In `whole` a chunk is summed when it has been sent to all.
 *
 * Called by coll.c. */
#include <errno.h>

#include "runtime/backend/cpu/net.h"
#include "runtime/base/mem.h"
#include "runtime/core/tuning.h"

#define FEW_HOSTS 8
#define SLOTS     3 /* per member */
#define NOBODY    UINT32_MAX
#define EVERYBODY (UINT32_MAX - 1)

struct buffer {
    struct piece piece;
    struct vec vec;
};
struct net_lane {              /* the state of a reduction towards one member */
    uint64_t part;             /* bytes that it sums */
    struct cursor give;        /* our contribution to its part */
    struct cursor spread;      /* our summed part, to be sent to it */
    struct cursor take;        /* its part, in our output */
    struct buffer from, to;    /* where R is received; what is sent from a slot */
    uint64_t n_sends, n_recvs; /* segments started */
    bool is_summand;           /* the one that is being received is an R */
};

struct mesh_fold {
    struct net *net;
    const struct reduction *r;
    uint64_t chunk, n_chunks;
    uint32_t gatherer;   /* which member receives the sums, EVERYBODY or NOBODY */
    bool is_whole;       /* chunks are sent before they are summed */
    struct cursor own;   /* our part: our values and where the sums go */
    uint64_t n_summed;   /* chunks */
    uint32_t lead;       /* bytes before the first R and the first G */
    uint32_t n_there[2]; /* members whose chunk has arrived, by slot */
};

struct segment {
    bool is_sum; /* G, else R */
    uint64_t c;
};

struct net_lane *net_lanes_new(uint32_t n)
{
    return mem_calloc(n, sizeof(struct net_lane));
}

/* --- the order of a stream --- */

static uint64_t n_segments(const struct mesh_fold *f)
{
    return f->gatherer == NOBODY ? f->n_chunks : 2 * f->n_chunks;
}

static struct segment segment_at(const struct mesh_fold *f, uint64_t i)
{
    uint64_t k = f->n_chunks;
    if (f->gatherer == NOBODY || i == 0)
        return (struct segment){false, i};
    if (i == 2 * k - 1)
        return (struct segment){true, k - 1};
    if (i % 2 == 1)
        return (struct segment){false, (i + 1) / 2};
    return (struct segment){true, i / 2 - 1};
}

/* The inverse. */
static uint64_t place_of(const struct mesh_fold *f, struct segment s)
{
    if (f->gatherer == NOBODY)
        return s.c;
    if (s.is_sum)
        return s.c == f->n_chunks - 1 ? 2 * f->n_chunks - 1 : 2 * s.c + 2;
    return s.c == 0 ? 0 : 2 * s.c - 1;
}

static bool is_sent(const struct mesh_fold *f, uint32_t to, struct segment s)
{
    uint64_t n = place_of(f, s) + 1, begun = f->net->lanes[to].n_sends;
    return begun > n || (begun == n && net_flow_is_empty(&f->net->peers[to].send));
}

static uint64_t chunk_bytes(const struct mesh_fold *f, uint64_t part, uint64_t c)
{
    uint64_t off = c * f->chunk;
    return off >= part ? 0 : part - off < f->chunk ? part - off : f->chunk;
}

static bool gets_sums(const struct mesh_fold *f, uint32_t member)
{
    return f->gatherer == EVERYBODY || f->gatherer == member;
}

/* Each member has two slots in scratch for what it sends, by chunk, and one for data to
 * it that must be scaled first. */
static uint8_t *fold_slot(const struct mesh_fold *f, uint32_t member, uint64_t c)
{
    return f->net->scratch + ((uint64_t)member * SLOTS + c % 2) * f->chunk;
}

static uint8_t *scaled_slot(const struct mesh_fold *f, uint32_t member)
{
    return f->net->scratch + ((uint64_t)member * SLOTS + 2) * f->chunk;
}

static struct cursor buffer_cursor(struct buffer *b, uint8_t *p, uint64_t n)
{
    b->piece = (struct piece){.in = p, .out = p, .n = n};
    b->vec = (struct vec){.v = &b->piece, .n = 1, .n_bytes = n};
    return cursor_at(&b->vec);
}

/* --- progress --- */

/* Whether our output has a place for our part's sums; otherwise they are sent from our
 * slots. */
static bool keeps_sums(const struct mesh_fold *f)
{
    return f->gatherer == NOBODY || gets_sums(f, f->net->me);
}

static void
fold_scale(const struct mesh_fold *f, uint8_t *dst, const uint8_t *src, uint64_t n)
{
    struct finish pre = {f->r->prescale, 1};
    const void *s = src;
    f->r->k->fold(dst, NULL, &s, 1, n / f->r->k->elem_bytes, &pre);
}

/* Our next contribution to a member's part: in its place, or scaled. */
static struct cursor fold_contribution(struct mesh_fold *f, uint32_t to, uint64_t n)
{
    struct net_lane *l = &f->net->lanes[to];
    struct cursor lies = l->give;
    uint8_t *p = scaled_slot(f, to);
    const uint8_t *in = NULL;
    uint8_t *out = NULL;
    if (f->r->prescale == 1.0) {
        cursor_skip(&l->give, n);
        return lies;
    }
    for (uint64_t done = 0, m; done < n; done += m) {
        m = cursor_next(&l->give, n - done, &in, &out);
        if (m == 0)
            break;
        fold_scale(f, p + done, in, m);
    }
    return buffer_cursor(&l->to, p, n);
}

static void feed_send(struct mesh_fold *f, uint32_t to)
{
    struct net *net = f->net;
    struct net_lane *l = &net->lanes[to];
    while (net_flow_is_empty(&net->peers[to].send) && l->n_sends < n_segments(f)) {
        struct segment s = segment_at(f, l->n_sends);
        uint64_t own = net->lanes[net->me].part;
        uint64_t n = chunk_bytes(f, s.is_sum ? own : l->part, s.c);
        if (s.is_sum && !gets_sums(f, to))
            n = 0;
        if (n > 0 && s.is_sum && s.c >= f->n_summed)
            return;
        if (n > 0 && s.is_sum && s.c == 0) /* after a pause: padding again */
            net->peers[to].send.lead = f->lead;
        if (n > 0 && !s.is_sum) {
            struct cursor c = fold_contribution(f, to, n);
            net_send(net, to, &c, n);
        } else if (n > 0 && keeps_sums(f)) {
            net_send(net, to, &l->spread, n);
            net->peers[to].send.is_out = true;
            cursor_skip(&l->spread, n);
        } else if (n > 0) {
            struct cursor c = buffer_cursor(&l->to, fold_slot(f, net->me, s.c), n);
            net_send(net, to, &c, n);
        }
        l->n_sends++;
    }
}

static void feed_recv(struct mesh_fold *f, uint32_t from)
{
    struct net *net = f->net;
    struct net_lane *l = &net->lanes[from];
    while (net_flow_is_empty(&net->peers[from].recv)) {
        if (l->is_summand) {
            f->n_there[segment_at(f, l->n_recvs - 1).c % 2]++;
            l->is_summand = false;
        }
        if (l->n_recvs == n_segments(f))
            return;
        struct segment s = segment_at(f, l->n_recvs);
        if (!s.is_sum) {
            uint64_t n = chunk_bytes(f, net->lanes[net->me].part, s.c);
            if (s.c >= f->n_summed + 2)
                return;
            struct cursor c = buffer_cursor(&l->from, fold_slot(f, from, s.c), n);
            net_recv(net, from, &c, n);
            l->is_summand = true;
        } else if (gets_sums(f, net->me)) {
            uint64_t n = chunk_bytes(f, l->part, s.c);
            if (n > 0 && s.c == 0)
                net->peers[from].recv.lead = f->lead;
            net_recv(net, from, &l->take, n);
            cursor_skip(&l->take, n);
        }
        l->n_recvs++;
    }
}

static void sum_chunk(struct mesh_fold *f)
{
    struct net *net = f->net;
    uint64_t c = f->n_summed, n = chunk_bytes(f, net->lanes[net->me].part, c);
    bool is_scaled = f->r->prescale != 1.0;
    for (uint64_t done = 0, m; done < n; done += m) {
        const uint8_t *in = NULL;
        uint8_t *out = NULL, *mine = fold_slot(f, net->me, c) + done;
        m = cursor_next(&f->own, n - done, &in, &out);
        if (m == 0)
            return;
        for (uint32_t j = 0; j < net->n; j++)
            net->src[j] = fold_slot(f, j, c) + done;
        if (is_scaled)
            fold_scale(f, mine, in, m);
        else
            net->src[net->me] = in;
        f->r->k->fold(keeps_sums(f) ? out : mine, NULL, net->src, net->n,
                      m / f->r->k->elem_bytes, &f->r->finish);
    }
}

static bool may_sum(const struct mesh_fold *f)
{
    const struct net *net = f->net;
    uint64_t c = f->n_summed;
    if (c == f->n_chunks || f->n_there[c % 2] < net->n - 1)
        return false;
    for (uint32_t j = 0; f->is_whole && j < net->n; j++)
        if (j != net->me && !is_sent(f, j, (struct segment){false, c}))
            return false;
    return keeps_sums(f) || c < 2
           || is_sent(f, f->gatherer, (struct segment){true, c - 2});
}

static void fold_advance(void *arg)
{
    struct mesh_fold *f = arg;
    struct net *net = f->net;
    for (;;) {
        for (uint32_t j = 0; j < net->n; j++)
            if (j != net->me) {
                feed_send(f, j);
                feed_recv(f, j);
            }
        if (!may_sum(f))
            return;
        sum_chunk(f);
        f->n_there[f->n_summed++ % 2] = 0;
    }
}

void net_set_tuning(struct net *net, const struct tuning *t)
{
    net->whole_bytes = t->whole_bytes;
    net->chunk_bytes = t->chunk_bytes;
}

static uint64_t chunk_max(const struct net *net)
{
    uint64_t n = net->chunk_bytes & ~(uint64_t)63;

    return net->chunk_bytes == 0 ? NET_CHUNK_MAX
           : n < NET_CHUNK_MIN   ? NET_CHUNK_MIN
                                 : n;
}

static uint64_t whole_max(const struct net *net)
{
    if (net->whole_bytes > 0)
        return net->whole_bytes;
    return net->n == 2 ? NET_PAIR_BYTES : NET_SMALL_BYTES;
}

/* The caller has set part, give and take of each lane, and f->own. */
static int fold_run(struct mesh_fold *f, struct err *err)
{
    struct net *net = f->net;
    uint64_t max = 0;
    if (net->n == 0)
        return err_set(err, -EINVAL, "reduction without members");
    int rc = net_complete(net, err);
    if (rc < 0)
        return rc;
    f->chunk = net->n_scratch / (SLOTS * (size_t)net->n) & ~(size_t)63;
    if (f->chunk > chunk_max(net))
        f->chunk = chunk_max(net);
    for (uint32_t j = 0; j < net->n; j++) {
        struct net_lane *l = &net->lanes[j];
        max = l->part > max ? l->part : max;
        l->spread = f->own;
        l->n_sends = l->n_recvs = 0;
        l->is_summand = false;
    }
    f->n_chunks = (max + f->chunk - 1) / f->chunk;
    f->lead = net_lead_bytes(max);
    for (uint32_t j = 0; j < net->n; j++)
        net_lead(net, j, max, max);
    return net_run(net, fold_advance, f, err);
}

/* --- ownership of parts --- */

/* Part j of n elements: [*ret_off, *ret_off + return) in bytes. */
static uint64_t reduce_part_of(
    const struct net *net, uint64_t n_bytes, size_t elem, uint32_t j, uint64_t *ret)
{
    uint64_t count = n_bytes / elem;
    uint64_t each = (count + net->n - 1) / net->n;
    uint64_t from = j * each < count ? j * each : count;
    uint64_t to = from + each < count ? from + each : count;
    *ret = from * elem;
    return (to - from) * elem;
}

static int fold_parts(struct net *net,
                      const struct vec *v,
                      const struct reduction *r,
                      uint32_t gatherer,
                      struct err *err)
{
    struct mesh_fold f = {.net = net, .r = r, .gatherer = gatherer};
    for (uint32_t j = 0; j < net->n; j++) {
        struct net_lane *l = &net->lanes[j];
        uint64_t off;
        l->part = reduce_part_of(net, v->n_bytes, r->k->elem_bytes, j, &off);
        l->give = cursor_at(v);
        cursor_skip(&l->give, off);
        l->take = l->give;
    }
    f.own = net->lanes[net->me].give;
    return fold_run(&f, err);
}

/* only: the member that sums, or EVERYBODY. */
static int fold_whole(struct net *net,
                      const struct vec *v,
                      const struct reduction *r,
                      uint32_t only,
                      struct err *err)
{
    struct mesh_fold f = {.net = net, .r = r, .gatherer = NOBODY, .is_whole = true};
    f.own = cursor_at(v);
    for (uint32_t j = 0; j < net->n; j++) {
        struct net_lane *l = &net->lanes[j];
        l->part = only == EVERYBODY || only == j ? v->n_bytes : 0;
        l->give = cursor_at(v);
    }
    return fold_run(&f, err);
}

/* Bruck's allgather of everyone's whole vector, then the sum. Block i of scratch is the
 * vector of member me + i. */
static int fold_round(struct net *net,
                      const struct vec *v,
                      const struct reduction *r,
                      struct err *err)
{
    uint32_t n = net->n, me = net->me;
    uint64_t each = v->n_bytes, m;
    struct mesh_fold f = {.net = net, .r = r};
    struct cursor c = cursor_at(v);
    cursor_pack(&c, net->scratch, each);
    if (r->prescale != 1.0)
        fold_scale(&f, net->scratch, net->scratch, each);
    for (uint32_t d = 1; d < n; d *= 2) {
        uint64_t bytes = (d < n - d ? d : n - d) * each;
        uint8_t *to = net->scratch + d * each;
        struct piece give = {.in = net->scratch, .n = bytes}, take = {NULL, to, bytes};
        struct vec vg = vec_of(&give, 1), vt = vec_of(&take, 1);
        struct cursor cg = cursor_at(&vg), ct = cursor_at(&vt);
        int rc =
            net_xfer(net, (me + n - d) % n, &cg, bytes, (me + d) % n, &ct, bytes, err);
        if (rc < 0)
            return rc;
    }
    c = cursor_at(v);
    for (uint64_t done = 0; done < each; done += m) {
        const uint8_t *in;
        uint8_t *out;
        m = cursor_next(&c, each - done, &in, &out);
        if (m == 0)
            break;
        for (uint32_t j = 0; j < n; j++)
            net->src[j] = net->scratch + (j + n - me) % n * each + done;
        r->k->fold(out, NULL, net->src, n, m / r->k->elem_bytes, &r->finish);
    }
    return 0;
}

int net_allreduce(struct net *net,
                  const struct vec *v,
                  const struct reduction *r,
                  struct err *err)
{
    if (v->n_bytes == 0)
        return 0;
    if (net->n <= FEW_HOSTS && v->n_bytes <= whole_max(net))
        return fold_whole(net, v, r, EVERYBODY, err);
    if (net->n > FEW_HOSTS && v->n_bytes * net->n <= NET_ROUND_BYTES)
        return fold_round(net, v, r, err);
    return fold_parts(net, v, r, EVERYBODY, err);
}

int net_reduce(struct net *net,
               const struct vec *v,
               uint32_t root,
               const struct reduction *r,
               struct err *err)
{
    if (v->n_bytes == 0)
        return 0;
    if (net->n == 2 || v->n_bytes <= NET_SMALL_BYTES) /* two: the same bytes */
        return fold_whole(net, v, r, root, err);
    return fold_parts(net, v, r, root, err);
}

int net_reduce_scatter(struct net *net,
                       const struct vec *parts,
                       const struct reduction *r,
                       struct err *err)
{
    struct mesh_fold f = {.net = net, .r = r, .gatherer = NOBODY};
    f.own = cursor_at(&parts[net->me]);
    for (uint32_t j = 0; j < net->n; j++) {
        net->lanes[j].part = parts[j].n_bytes;
        net->lanes[j].give = cursor_at(&parts[j]);
    }
    return fold_run(&f, err);
}
