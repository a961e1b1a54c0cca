/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions, as fuse.h plans them. A large tensor is a call on itself. Small ones are
 * packed by one kernel, reduced by one call and unpacked by another kernel, which also
 * scale and convert. All calls of a batch are one group.
 *
 * First each tensor gets the places where NCCL reads and writes. What is not there
 * already, or must be computed, is a move before or after the calls.
 *
 * A member that has joined has no tensors: its zeros and the results that it would
 * receive lie in the fusion buffer, and it makes the same calls as all members. No
 * input is written unless it is the output too. */
#include <errno.h>

#include "runtime/backend/nccl/dtype.h"
#include "runtime/backend/nccl/gcoll.h"
#include "runtime/backend/nccl/graph.h"
#include "runtime/base/mem.h"

struct reducing {
    struct gpu_reduction r;
    struct fuse_plan plan;
    size_t in_size, wire_size; /* of an element */
    uint32_t generation;       /* of the buffer, if a graph packs into it */
    bool is_call_each; /* of packed tensors: results must not depend on the batch */
    size_t n;
    uint64_t *counts, *offsets; /* mem_free */
    cu_ptr *in, *out;           /* of NCCL's calls; 0: only of an empty tensor */
    cu_ptr packed_in, packed_out;
    struct fuse_move *moves;
    struct gcoll_calls calls;
};

static void reducing_release(struct reducing *q)
{
    mem_free(q->counts);
    mem_free(q->offsets);
    mem_free(q->in);
    mem_free(q->out);
    mem_free(q->moves);
    mem_free(q->calls.v);
}

static int reducing_begin(struct gcoll_post *p, struct reducing *q, struct err *err)
{
    const struct batch *b = p->batch;
    const struct gpu_reduction_request ask = {
        b->dtype, p->wire ? *p->wire : b->dtype, b->op, b->prescale, b->postscale,
        p->c->n};

    *q = (struct reducing){.n = b->n_items};
    if (b->op == OP_ADASUM)
        return err_set(err, -ENOTSUP, "ADASUM is no reducescatter");
    reduction_plan(&ask, &q->r);
    q->in_size = dtype_size(b->dtype);
    q->wire_size = dtype_size(q->r.wire);
    q->counts = mem_calloc(q->n, sizeof(*q->counts));
    q->offsets = mem_calloc(q->n, sizeof(*q->offsets));
    q->in = mem_calloc(q->n, sizeof(*q->in));
    q->out = mem_calloc(q->n, sizeof(*q->out));
    q->moves = mem_calloc(q->n, sizeof(*q->moves));
    if (!q->counts || !q->offsets || !q->in || !q->out || !q->moves)
        return err_set(err, -ENOMEM, "out of memory for a batch of %zu tensors", q->n);
    return 0;
}

/* A tensor through kernel k; copies count bytes. */
static struct fuse_move move_of(enum kernel_id k,
                                cu_ptr src,
                                size_t src_size,
                                cu_ptr dst,
                                size_t dst_size,
                                uint64_t count)
{
    if (k == KERNEL_copy)
        return (struct fuse_move){src, dst, count * src_size, 1, 1, 0};
    return (struct fuse_move){src, dst, count, (uint32_t)src_size, (uint32_t)dst_size,
                              0};
}

/* The inputs that calls do not read where they lie, to where they do. Returns their
 * number. */
static size_t moves_in(struct gcoll_post *p, struct reducing *q)
{
    size_t n = 0;

    for (size_t i = 0; i < q->n; i++) {
        const cu_ptr src = gcoll_ptr(p->batch->items[i].in);

        if (q->r.needs_in || src != q->in[i])
            q->moves[n++] =
                move_of(q->r.in, src, q->in_size, q->in[i], q->wire_size, q->counts[i]);
    }
    return n;
}

static int reduce_move_in(struct gcoll_post *p, struct reducing *q, struct err *err)
{
    const size_t n = moves_in(p, q);

    return gcoll_moves(p, q->r.in, q->moves, n, q->r.in_scale, 1, err);
}

/* The results to the tensors' own outputs, where this member has them. */
static int reduce_move_out(struct gcoll_post *p, struct reducing *q, struct err *err)
{
    size_t n = 0;

    for (size_t i = 0; i < q->n; i++) {
        const cu_ptr dst = gcoll_ptr(p->batch->items[i].out);

        if (dst && (q->r.needs_out || dst != q->out[i]))
            q->moves[n++] = move_of(q->r.out, q->out[i], q->wire_size, dst, q->in_size,
                                    q->counts[i]);
    }
    return gcoll_moves(p, q->r.out, q->moves, n, q->r.out_scale, q->r.out_divisor, err);
}

static int add_call(struct gcoll_post *p,
                    struct reducing *q,
                    cu_ptr in,
                    cu_ptr out,
                    uint64_t n,
                    struct err *err)
{
    const struct gcoll_call call = {
        .kind = p->batch->coll == COLL_REDUCE ? CALL_REDUCE : CALL_ALL_REDUCE,
        .in = in,
        .out = out,
        .count = n,
        .dtype = q->r.nccl_dtype,
        .op = q->r.nccl_op,
        .peer = (int)p->batch->root,
    };

    return gcoll_is_alone(p) ? 0 : gcoll_add(&q->calls, call, err);
}

/* Does this member keep a result? */
static bool post_has_result(const struct gcoll_post *p)
{
    return p->batch->coll != COLL_REDUCE || p->batch->root == p->c->me;
}

/* --- as a graph --- */

/* Everything that the calls and kernels of a packed batch depend on, followed by
 * counts. */
struct packed_key {
    uint32_t coll, root, in, out, wire, divisor;
    int32_t nccl_dtype, nccl_op;
    double in_scale, out_scale;
    uint64_t is_call_each, n;
    uint64_t counts[];
};

struct packed {
    struct gcoll_post *p;
    struct reducing *q;
    uint32_t n_in, n_out;
};

static int enqueue_packed(void *arg, cu_ptr in, cu_ptr out, struct err *err)
{
    const struct packed *k = arg;
    const struct gpu_reduction *r = &k->q->r;
    int rc = gcoll_launch(k->p, r->in, in, k->n_in, r->in_scale, 1, err);

    if (!rc)
        rc = gcoll_make(k->p, &k->q->calls, err);
    return rc ? rc
              : gcoll_launch(k->p, r->out, out, k->n_out, r->out_scale, r->out_divisor,
                             err);
}

static struct graphs *graphs_of(struct gcoll_post *p)
{
    struct comm *c = p->c;

    if (!c->graphs)
        c->graphs = graphs_new(p->g->cu, p->g->tables, p->g->streams, GPU_MAX_STREAMS,
                               &p->g->whole);
    return c->graphs ? &c->graphs[p->index] : NULL;
}

/* Moves out of the buffer. The number of chunks is the same on all members: a rank that
 * does not read a tensor's result has empty chunks for it. A different number
 * would cause a new capture on this member alone (rule R2). */
static int chunks_out(struct gcoll_post *p,
                      struct reducing *q,
                      struct chunk **ret,
                      uint32_t *ret_n,
                      struct err *err)
{
    const struct batch_item *v = p->batch->items;
    uint64_t at = 0;

    for (size_t i = 0; i < q->n; i++)
        q->moves[i] = move_of(q->r.out, q->out[i], q->wire_size, gcoll_ptr(v[i].out),
                              q->in_size, q->counts[i]);
    int rc = gcoll_chunks(q->moves, q->n, ret, ret_n, err);
    for (size_t i = 0; i < q->n && !rc; i++) {
        const uint64_t end = at + fuse_chunk_count(&q->moves[i]);

        for (; at < end; at++)
            if (!v[i].out)
                (*ret)[at].n = 0;
    }
    return rc;
}

/* The calls are collected, and all tensors are packed. Runs the batch as a graph if it
 * has occurred before. */
static int run_graph(struct gcoll_post *p, struct reducing *q, struct err *err)
{
    const size_t bytes = sizeof(struct packed_key) + q->n * sizeof(uint64_t);
    AUTOFREE struct packed_key *key = mem_zalloc(bytes);
    AUTOFREE struct chunk *in = NULL;
    AUTOFREE struct chunk *out = NULL;
    struct graphs *graphs = graphs_of(p);
    struct packed k = {.p = p, .q = q};

    if (!key || !graphs)
        return err_set(err, -ENOMEM, "out of memory for a graph of %zu tensors", q->n);
    *key = (struct packed_key){
        p->batch->coll,
        /* in an allreduce it differs on a rank that has joined */
        p->batch->coll == COLL_REDUCE ? p->batch->root : 0, q->r.in, q->r.out,
        q->r.wire, q->r.out_divisor, q->r.nccl_dtype, q->r.nccl_op, q->r.in_scale,
        q->r.out_scale, q->is_call_each, q->n};
    for (size_t i = 0; i < q->n; i++)
        key->counts[i] = q->counts[i];
    const size_t n_in = moves_in(p, q);
    int rc = gcoll_chunks(q->moves, n_in, &in, &k.n_in, err);
    if (!rc && post_has_result(p))
        rc = chunks_out(p, q, &out, &k.n_out, err);
    const struct graph_batch b = {
        .key = key,
        .key_bytes = bytes,
        .place = q->generation,
        .in = in,
        .out = out,
        .n_in = k.n_in,
        .n_out = k.n_out,
        .enqueue = enqueue_packed,
        .arg = &k,
    };
    return rc ? rc : graph_run(graphs, &b, err);
}

/* --- allreduce and reduce --- */

/* Tensors of a registered buffer are not packed: one call per tensor, on itself. But a
 * reduce whose input is scaled first goes through the buffer on all members: a rank
 * that is not the root has no registered output to scale into. */
static int plan_batch(struct gcoll_post *p, struct reducing *q, struct err *err)
{
    const bool is_registered = p->batch->region > 0;
    const bool packs_all =
        q->in_size != q->wire_size
        || (is_registered && p->batch->coll == COLL_REDUCE && q->r.needs_in);
    struct comm_terms t = p->c->terms;

    t.is_deterministic |= is_registered;
    if (gcoll_is_alone(p))
        t.fusion_bytes = 0; /* it is copied from each tensor to its output */
    q->is_call_each = t.is_deterministic;
    for (size_t i = 0; i < q->n; i++)
        q->counts[i] = p->batch->items[i].count;
    return fuse_plan(q->counts, q->n, q->wire_size, packs_all ? NULL : &t, &q->plan,
                     q->offsets)
               ? err_set(err, -EOVERFLOW, "a batch of more than 2^63 bytes")
               : 0;
}

static bool reduce_is_packed(const struct reducing *q, size_t i)
{
    return fuse_is_packed(&q->plan, q->offsets[i]);
}

/* Direct calls use this member's tensors, or the buffer. A member that is not the root
 * of a reduce has no outputs; NCCL does not write to the address given there. */
static int place_direct(struct gcoll_post *p, struct reducing *q, struct err *err)
{
    const struct batch_item *v = p->batch->items;
    bool needs_buffer = false;
    cu_ptr buffer = 0;
    int rc = 0;

    for (size_t i = 0; i < q->n; i++) {
        q->out[i] = post_has_result(p) ? gcoll_ptr(v[i].out)
                    : q->r.needs_in    ? 0
                                       : gcoll_ptr(v[i].in);
        needs_buffer |= !q->out[i] && q->counts[i] && !reduce_is_packed(q, i);
    }
    if (needs_buffer)
        rc =
            scratch_fusion(&p->g->scratch, p->index, q->plan.bytes, p->s, &buffer, err);
    for (size_t i = 0; i < q->n && !rc; i++) {
        if (!q->out[i] && buffer)
            q->out[i] = buffer + q->offsets[i];
        q->in[i] = gcoll_ptr(v[i].in);
        if (q->r.needs_in || !q->in[i] || gcoll_is_alone(p))
            q->in[i] = q->out[i];
    }
    return rc;
}

/* Graphs have an unregistered buffer of their own: the registered one is shared by all
 * communicators of a rank, and may move on one rank alone. */
static int
take_buffer(struct gcoll_post *p, struct reducing *q, cu_ptr *ret, struct err *err)
{
    const uint64_t bytes = q->plan.packed_bytes;
    struct graphs *graphs;

    if (!p->c->terms.uses_graphs || gcoll_is_alone(p))
        return comm_fusion(p->c, p->index, bytes, p->s, ret, &q->generation, err);
    graphs = graphs_of(p);
    return graphs ? graphs_buffer(graphs, bytes, ret, &q->generation, err)
                  : err_set(err, -ENOMEM, "out of memory for graphs");
}

static cu_ptr
find_base(const struct gcoll_post *p, const struct reducing *q, const cu_ptr *at)
{
    return fuse_find_base(&q->plan, &p->c->terms, q->in_size, q->counts, q->offsets, at,
                          q->n);
}

/* Do the packed tensors lie as in the buffer, so that no move is needed? The places are
 * those of direct calls so far. */
static bool lies_as_packed(struct gcoll_post *p, struct reducing *q)
{
    if (q->r.needs_in || q->r.needs_out || gcoll_is_alone(p) || !post_has_result(p))
        return false;
    q->packed_in = find_base(p, q, q->in);
    q->packed_out = find_base(p, q, q->out);
    return q->packed_in && q->packed_out;
}

/* After place_direct, whose buffer is at least as large. */
static int place_packed(struct gcoll_post *p, struct reducing *q, struct err *err)
{
    cu_ptr buffer;
    int rc;

    if (q->plan.packed_bytes == 0 || lies_as_packed(p, q))
        return 0;
    rc = take_buffer(p, q, &buffer, err);
    if (rc)
        return rc;
    q->packed_in = q->packed_out = buffer;
    for (size_t i = 0; i < q->n; i++)
        if (reduce_is_packed(q, i)) {
            q->in[i] = q->out[i] = buffer + q->offsets[i];
            p->packed_bytes += q->counts[i] * q->in_size;
        }
    return 0;
}

static int add_calls(struct gcoll_post *p, struct reducing *q, struct err *err)
{
    const bool is_one = q->plan.packed_bytes > 0 && !q->is_call_each;
    int rc = 0;

    for (size_t i = 0; i < q->n && !rc; i++)
        if (!is_one || !reduce_is_packed(q, i))
            rc = add_call(p, q, q->in[i], q->out[i], q->counts[i], err);
    return rc || !is_one ? rc
                         : add_call(p, q, q->packed_in, q->packed_out,
                                    q->plan.packed_bytes / q->wire_size, err);
}

static int run_planned(struct gcoll_post *p, struct reducing *q, struct err *err)
{
    int rc = plan_batch(p, q, err);

    if (rc || q->plan.bytes == 0)
        return rc;
    rc = place_direct(p, q, err);
    if (!rc)
        rc = place_packed(p, q, err);
    if (!rc)
        rc = add_calls(p, q, err);
    if (!rc && q->plan.packed_bytes && p->c->terms.uses_graphs && !gcoll_is_alone(p))
        return run_graph(p, q, err);
    if (!rc)
        rc = reduce_move_in(p, q, err);
    if (!rc)
        rc = gcoll_make(p, &q->calls, err);
    return rc || !post_has_result(p) ? rc : reduce_move_out(p, q, err);
}

/* --- reducescatter --- */

static int add_parts(struct gcoll_post *p,
                     struct reducing *q,
                     const uint64_t *counts,
                     cu_ptr in,
                     cu_ptr out,
                     struct err *err)
{
    const uint32_t n = p->c->n;
    struct gcoll_call call = {
        .kind = CALL_REDUCE_SCATTER,
        .in = in,
        .out = out,
        .count = counts[0],
        .dtype = q->r.nccl_dtype,
        .op = q->r.nccl_op,
    };
    int rc = 0;

    if (gcoll_is_alone(p))
        return gcoll_copy(p, out,
                          in + gcoll_counts_sum(counts, p->c->me) * q->wire_size,
                          counts[p->c->me] * q->wire_size, err);
    if (gcoll_counts_are_equal(counts, n))
        return gcoll_add(&q->calls, call, err);
    call.kind = CALL_REDUCE;
    for (uint32_t j = 0; j < n && !rc; j++) {
        call.count = counts[j];
        call.peer = (int)j;
        rc = gcoll_add(&q->calls, call, err);
        call.in += counts[j] * q->wire_size;
    }
    return rc;
}

/* Calls of unequal counts are one reduce per member, whose root alone has an output.
 * From a registered buffer the other members' calls would use registered memory and
 * the root's would not, so the whole batch goes through our buffer. */
static bool copies_in(const struct gcoll_post *p, const struct batch_item *it)
{
    return p->batch->region > 0 && !gcoll_is_alone(p)
           && !gcoll_counts_are_equal(it->counts, p->c->n);
}

/* Where the calls read and write: the tensors themselves, or a place in the buffer for
 * the whole input in the wire's type, or for our part of it. Returns the bytes of the
 * buffer; in[i] and out[i] are 0 for those in it. */
static uint64_t place_scatter(struct gcoll_post *p, struct reducing *q)
{
    const uint32_t n = p->c->n, me = p->c->me;
    uint64_t bytes = 0;

    for (size_t i = 0; i < q->n; i++) {
        const struct batch_item *it = &p->batch->items[i];

        q->counts[i] = gcoll_counts_sum(it->counts, n);
        q->offsets[i] = bytes;
        q->in[i] = q->r.needs_in || copies_in(p, it) ? 0 : gcoll_ptr(it->in);
        q->out[i] = q->in_size == q->wire_size ? gcoll_ptr(it->out) : 0;
        if (!q->in[i])
            bytes += fuse_align_size(q->counts[i] * q->wire_size);
        if (!q->out[i])
            bytes += fuse_align_size(it->counts[me] * q->wire_size);
    }
    return bytes;
}

static void take_place(struct reducing *q, size_t i, cu_ptr buffer)
{
    cu_ptr at = buffer + q->offsets[i];

    if (!q->in[i]) {
        q->in[i] = at;
        at += fuse_align_size(q->counts[i] * q->wire_size);
    }
    if (!q->out[i])
        q->out[i] = at;
}

static int run_scatter(struct gcoll_post *p, struct reducing *q, struct err *err)
{
    const struct batch_item *v = p->batch->items;
    const uint64_t bytes = place_scatter(p, q);
    cu_ptr buffer = 0;
    p->packed_bytes = bytes ? GCOLL_ALL_PACKED : 0;
    int rc =
        bytes ? scratch_fusion(&p->g->scratch, p->index, bytes, p->s, &buffer, err) : 0;

    for (size_t i = 0; i < q->n && !rc; i++)
        take_place(q, i, buffer);
    if (!rc)
        rc = reduce_move_in(p, q, err);
    for (size_t i = 0; i < q->n && !rc; i++)
        rc = add_parts(p, q, v[i].counts, q->in[i], q->out[i], err);
    if (!rc)
        rc = gcoll_make(p, &q->calls, err);
    for (size_t i = 0; i < q->n; i++)
        q->counts[i] = v[i].counts[p->c->me];
    return rc ? rc : reduce_move_out(p, q, err);
}

int gcoll_reduce(struct gcoll_post *p, struct err *err)
{
    struct reducing q;
    int rc = reducing_begin(p, &q, err);

    if (!rc)
        rc = p->batch->coll == COLL_REDUCESCATTER ? run_scatter(p, &q, err)
                                                  : run_planned(p, &q, err);
    reducing_release(&q);
    return rc;
}
