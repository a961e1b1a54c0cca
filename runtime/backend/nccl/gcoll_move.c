/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives that only move bytes, of any type. Each tensor is one or more calls, all
 * of a batch in one group, except a broadcast of many small tensors, which goes
 * through the buffer. A member's own part is a copy on the stream. Parts without
 * elements make no call, on all members alike, because counts are equal everywhere. */
#include <errno.h>

#include "runtime/backend/nccl/exchange.h"
#include "runtime/backend/nccl/gcoll.h"
#include "runtime/backend/nccl/nccl_dl.h"
#include "runtime/base/mem.h"

struct moving {
    struct gcoll_post *p;
    struct gcoll_calls calls;
    size_t size; /* of an element */
    size_t item; /* current item */
    uint64_t
        group; /* of added calls; 0 for collectives, which all members make alike */
};

static int moving_add(struct moving *m,
                      enum gcoll_kind kind,
                      cu_ptr in,
                      cu_ptr out,
                      uint64_t count,
                      uint32_t peer,
                      struct err *err)
{
    const struct gcoll_call call = {
        .kind = kind,
        .in = in,
        .out = out,
        .count = count * m->size,
        .dtype = NCCL_U8,
        .peer = (int)peer,
        .group = m->group,
    };

    return m->p->c->n_nc ? gcoll_add(&m->calls, call, err) : 0;
}

static int
moving_add_broadcast(struct moving *m, const struct batch_item *it, struct err *err)
{
    const uint32_t root = m->p->batch->root;
    const bool is_root = root == m->p->c->me;
    const cu_ptr in = gcoll_ptr(it->in), out = gcoll_ptr(it->out);

    if (is_root && !m->p->c->n_nc)
        return gcoll_copy(m->p, out, in, it->count * m->size, err);
    /* elsewhere the input is not read, but NCCL requires an address */
    return moving_add(m, CALL_BROADCAST, is_root ? in : out, out, it->count, root, err);
}

/* Uneven parts: a broadcast per member. */
static int
moving_add_allgather(struct moving *m, const struct batch_item *it, struct err *err)
{
    const uint32_t n = m->p->c->n, me = m->p->c->me;
    const cu_ptr in = gcoll_ptr(it->in);
    cu_ptr at = gcoll_ptr(it->out);
    int rc = 0;

    if (!m->p->c->n_nc)
        return gcoll_copy(m->p, at, in, it->counts[0] * m->size, err);
    if (gcoll_counts_are_equal(it->counts, n))
        return moving_add(m, CALL_ALL_GATHER, in, at, it->counts[0], 0, err);
    for (uint32_t j = 0; j < n && !rc; j++) {
        /* Otherwise only the root's memory would be registered. */
        const bool copies = j == me && m->p->batch->region > 0;

        if (copies)
            rc = gcoll_copy(m->p, at, in, it->counts[j] * m->size, err);
        if (!rc)
            rc = moving_add(m, CALL_BROADCAST, j == me && !copies ? in : at, at,
                            it->counts[j], j, err);
        at += it->counts[j] * m->size;
    }
    return rc;
}

static int
moving_add_gather(struct moving *m, const struct batch_item *it, struct err *err)
{
    const uint32_t n = m->p->c->n, me = m->p->c->me, root = m->p->batch->root;
    const cu_ptr in = gcoll_ptr(it->in);
    cu_ptr at = gcoll_ptr(it->out) + gcoll_counts_sum(it->counts, me) * m->size;
    int rc = 0;

    if (me != root) {
        m->group = exchange_step(n, me, m->item, (root + n - me) % n).group;
        return moving_add(m, CALL_SEND, in, 0, it->counts[me], root, err);
    }
    rc = gcoll_copy(m->p, at, in, it->counts[me] * m->size, err);
    for (uint32_t shift = 1; shift < n && !rc; shift++) {
        const struct gpu_exchange x = exchange_step(n, me, m->item, shift);

        if (x.from == n - 1) /* wrap around */
            at = gcoll_ptr(it->out) + gcoll_counts_sum(it->counts, n) * m->size;
        at -= it->counts[x.from] * m->size;
        m->group = x.group;
        rc = moving_add(m, CALL_RECV, 0, at, it->counts[x.from], x.from, err);
    }
    return rc;
}

static int
moving_add_alltoall(struct moving *m, const struct batch_item *it, struct err *err)
{
    const uint32_t n = m->p->c->n, me = m->p->c->me;
    const uint64_t *sends = it->send_counts, *recvs = it->counts;
    cu_ptr from = gcoll_ptr(it->in) + gcoll_counts_sum(sends, me) * m->size;
    cu_ptr to = gcoll_ptr(it->out) + gcoll_counts_sum(recvs, me) * m->size;
    int rc = gcoll_copy(m->p, to, from, recvs[me] * m->size, err);

    from += sends[me] * m->size;
    for (uint32_t shift = 1; shift < n && !rc; shift++) {
        const struct gpu_exchange x = exchange_step(n, me, m->item, shift);

        if (x.to == 0) /* wrap around */
            from = gcoll_ptr(it->in);
        if (x.from == n - 1)
            to = gcoll_ptr(it->out) + gcoll_counts_sum(recvs, n) * m->size;
        to -= recvs[x.from] * m->size;
        m->group = x.group;
        rc = moving_add(m, CALL_SEND, from, 0, sends[x.to], x.to, err);
        if (!rc)
            rc = moving_add(m, CALL_RECV, 0, to, recvs[x.from], x.from, err);
        from += sends[x.to] * m->size;
    }
    return rc;
}

static int
moving_add_sendrecv(struct moving *m, const struct batch_item *it, struct err *err)
{
    const uint32_t me = m->p->c->me, root = m->p->batch->root;

    if (me == root)
        return moving_add(m, CALL_SEND, gcoll_ptr(it->in), 0, it->count, 1 - me, err);
    return moving_add(m, CALL_RECV, 0, gcoll_ptr(it->out), it->count, root, err);
}

static int
moving_add_item(struct moving *m, const struct batch_item *it, struct err *err)
{
    switch (m->p->batch->coll) {
    case COLL_BROADCAST:
        return moving_add_broadcast(m, it, err);
    case COLL_ALLGATHER:
        return moving_add_allgather(m, it, err);
    case COLL_GATHER:
        return moving_add_gather(m, it, err);
    case COLL_ALLTOALL:
        return moving_add_alltoall(m, it, err);
    case COLL_SENDRECV:
        return moving_add_sendrecv(m, it, err);
    case COLL_ALLREDUCE:
    case COLL_BARRIER:
    case COLL_REDUCESCATTER:
    case COLL_REDUCE:
    case COLL_JOIN:
    case COLL_SET_ADD:
    case COLL_SET_REMOVE:
    case COLL_REGISTER:
    case COLL_PROBE:
    case COLL_COUNT:
        break;
    }
    return err_set(err, -EINVAL, "%s is not a move",
                   collective_name(m->p->batch->coll));
}

/* --- a broadcast of many small tensors --- */

#define PACKS_FROM  65           /* tensors */
#define PACKS_BELOW (256 * 1024) /* bytes: their mean */

/* One kernel packs on the root, or unpacks on all members. moves[n]: storage. */
static int copy_all(struct moving *m,
                    bool packs,
                    cu_ptr buffer,
                    const uint64_t *offsets,
                    struct fuse_move *moves,
                    struct err *err)
{
    const struct batch *b = m->p->batch;
    size_t n = 0;

    for (size_t i = 0; i < b->n_items; i++) {
        const cu_ptr in = gcoll_ptr(b->items[i].in), out = gcoll_ptr(b->items[i].out);
        const cu_ptr at = buffer + offsets[i];

        if (!packs && (!out || (out == in && b->root == m->p->c->me)))
            continue;
        moves[n++] = (struct fuse_move){.src = packs ? in : at,
                                        .dst = packs ? at : out,
                                        .count = b->items[i].count * m->size,
                                        .src_size = 1,
                                        .dst_size = 1};
    }
    return gcoll_moves(m->p, KERNEL_copy, moves, n, 1, 1, err);
}

/* 1: the batch does not qualify. */
static int broadcast_packed(struct moving *m, struct err *err)
{
    struct gcoll_post *p = m->p;
    const size_t n = p->batch->n_items;
    struct fuse_plan plan;
    uint32_t generation;
    cu_ptr buffer;

    if (n < PACKS_FROM || !p->c->n_nc || p->batch->region > 0
        || p->c->terms.is_deterministic)
        return 1;
    AUTOFREE uint64_t *bytes = mem_calloc(2 * n, sizeof(*bytes));
    AUTOFREE struct fuse_move *moves = mem_calloc(n, sizeof(*moves));
    if (!bytes || !moves)
        return err_set(err, -ENOMEM, "out of memory for a batch of %zu tensors", n);
    for (size_t i = 0; i < n; i++)
        bytes[i] = p->batch->items[i].count * m->size;
    if (fuse_plan(bytes, n, 1, NULL, &plan, bytes + n))
        return err_set(err, -EOVERFLOW, "a batch of more than 2^63 bytes");
    if (plan.bytes == 0 || plan.bytes / n >= PACKS_BELOW
        || plan.bytes > p->c->terms.fusion_bytes)
        return 1;
    p->packed_bytes = GCOLL_ALL_PACKED;
    int rc = comm_fusion(p->c, p->index, plan.bytes, p->s, &buffer, &generation, err);
    if (!rc && p->batch->root == p->c->me)
        rc = copy_all(m, true, buffer, bytes + n, moves, err);
    if (!rc)
        rc = moving_add(m, CALL_BROADCAST, buffer, buffer, plan.bytes / m->size,
                        p->batch->root, err);
    if (!rc)
        rc = gcoll_make(p, &m->calls, err);
    return rc ? rc : copy_all(m, false, buffer, bytes + n, moves, err);
}

int gcoll_move(struct gcoll_post *p, struct err *err)
{
    struct moving m = {.p = p, .size = dtype_size(p->batch->dtype)};
    int rc = p->batch->coll == COLL_BROADCAST ? broadcast_packed(&m, err) : 1;

    if (rc <= 0) {
        mem_free(m.calls.v);
        return rc;
    }
    rc = 0;

    for (; m.item < p->batch->n_items && !rc; m.item++)
        rc = moving_add_item(&m, &p->batch->items[m.item], err);
    if (!rc)
        rc = gcoll_make(p, &m.calls, err);
    mem_free(m.calls.v);
    return rc;
}
