/* SPDX-License-Identifier: Apache-2.0 */
/* Adasum on the device: cpu/adasum.c's tree, in which two vectors a and b become
 * (1 - ab / 2aa) a + (1 - ab / 2bb) b, tensor by tensor.
 *
 * With p the greatest power of two up to the number of members, member p + i sends its
 * vectors to member i first, and receives the result at the end. At distance d = 1, 2,
 * 4 ... the members m and m ^ d exchange all their vectors, packed, and both do the
 * same arithmetic, with the lower member's vectors as a: so all get the same bits.
 * (The CPU exchanges halves; here the link is faster than one more round of small
 * messages.) Dot products are summed in float64 in an order that depends on counts
 * alone (adasum.cu). 16-bit floats are widened, and rounded once, at the end.
 *
 * Compressed (fp16, bf16) the arithmetic is the same, but what is sent is rounded to
 * 16 bits, together with the sender's own copy, and so is the result: as on the CPU
 * each level rounds, and all have the same bits.
 *
 * Memory: the batch twice in the fusion buffer, ours and the partner's; compressed
 * also the 16-bit copies of both; behind them the sums of each chunk and the weights
 * of each tensor. The combined vectors replace a, whichever member's that is: then
 * ours and theirs swap. Called by gcoll.c. */
#include <errno.h>

#include "runtime/backend/nccl/dtype.h"
#include "runtime/backend/nccl/gcoll.h"
#include "runtime/backend/nccl/launch.h"
#include "runtime/backend/nccl/table.h"
#include "runtime/base/mem.h"

#define HALF_SIZE 2u

struct gpu_adasum {
    struct gcoll_post *p;
    struct gpu_reduction r;
    struct fuse_plan plan;
    uint32_t size, wire_size; /* of an element */
    size_t n;
    uint64_t *counts, *offsets; /* [n] */
    struct fuse_move *moves;    /* [n] */
    struct chunk *chunks;       /* [n_chunks] */
    struct chunk *tensors;      /* [n] of struct args_dots_end */
    uint32_t n_chunks;
    cu_ptr ours, theirs, sums, weights;
    bool is_halved; /* 16 bits of each element are sent: */
    int half_dtype;
    enum kernel_id narrow, widen;
    cu_ptr half_ours, half_theirs;
};

/* src and dst are of the wire's type. */
static struct fuse_move
pair_move(const struct gpu_adasum *a, size_t i, cu_ptr src, cu_ptr dst)
{
    return (struct fuse_move){.src = src + a->offsets[i],
                              .dst = dst + a->offsets[i],
                              .count = a->counts[i],
                              .src_size = a->wire_size,
                              .dst_size = a->wire_size,
                              .tensor = (uint32_t)i};
}

static int plan_chunks(struct gpu_adasum *a, struct err *err)
{
    uint64_t n = 0;

    for (size_t i = 0; i < a->n; i++) {
        const struct fuse_move m = pair_move(a, i, FUSE_ALIGN, FUSE_ALIGN);
        const uint64_t more = fuse_chunk_count(&m);

        a->tensors[i] = (struct chunk){.src = n, .n = (uint32_t)more};
        n += more;
    }
    if (n > INT32_MAX)
        return err_set(err, -E2BIG, "%llu pieces in one batch", (unsigned long long)n);
    a->chunks = mem_calloc(n + 1, sizeof(*a->chunks));
    if (!a->chunks)
        return err_set(err, -ENOMEM, "out of memory for %llu pieces of tensors",
                       (unsigned long long)n);
    a->n_chunks = (uint32_t)n;
    return 0;
}

static int adasum_begin(struct gpu_adasum *a, struct err *err)
{
    const struct batch *b = a->p->batch;
    const struct gpu_reduction_request ask = {b->dtype,    b->dtype,     b->op,
                                              b->prescale, b->postscale, a->p->c->n};

    reduction_plan(&ask, &a->r);
    if (a->p->wire) {
        a->is_halved = dtype_casts(a->r.wire, *a->p->wire, &a->narrow, &a->widen);
        a->half_dtype = nccl_dtype_of(*a->p->wire);
    }
    a->size = (uint32_t)dtype_size(b->dtype);
    a->wire_size = (uint32_t)dtype_size(a->r.wire);
    a->n = b->n_items;
    a->counts = mem_calloc(a->n, sizeof(*a->counts));
    a->offsets = mem_calloc(a->n, sizeof(*a->offsets));
    a->moves = mem_calloc(a->n, sizeof(*a->moves));
    a->tensors = mem_calloc(a->n, sizeof(*a->tensors));
    if (!a->counts || !a->offsets || !a->moves || !a->tensors)
        return err_set(err, -ENOMEM, "out of memory for a batch of %zu tensors", a->n);
    for (size_t i = 0; i < a->n; i++)
        a->counts[i] = b->items[i].count;
    if (fuse_plan(a->counts, a->n, a->wire_size, NULL, &a->plan, a->offsets))
        return err_set(err, -EOVERFLOW, "a batch of more than 2^63 bytes");
    return plan_chunks(a, err);
}

static int find_memory(struct gpu_adasum *a, struct err *err)
{
    const uint64_t wire = a->plan.bytes, sums = a->n_chunks * sizeof(struct dots),
                   weights = a->n * sizeof(struct weights),
                   half = a->is_halved
                              ? fuse_align_size(wire / a->wire_size * HALF_SIZE)
                              : 0;
    cu_ptr at;

    if (wire > INT64_MAX / 8)
        return err_set(err, -EOVERFLOW, "a batch of more than 2^63 bytes");
    int rc = scratch_fusion(&a->p->g->scratch, a->p->index,
                            2 * (wire + half) + fuse_align_size(sums) + weights,
                            a->p->s, &at, err);
    if (rc)
        return rc;
    a->half_ours = at;
    a->half_theirs = at + half;
    at += 2 * half;
    a->ours = at;
    a->theirs = at + wire;
    a->sums = at + 2 * wire;
    a->weights = a->sums + fuse_align_size(sums);
    return 0;
}

static void adasum_release(struct gpu_adasum *a)
{
    mem_free(a->counts);
    mem_free(a->offsets);
    mem_free(a->moves);
    mem_free(a->chunks);
    mem_free(a->tensors);
}

/* --- to the buffer and back --- */

static struct fuse_move in_bytes(enum kernel_id k, struct fuse_move m)
{
    if (k != KERNEL_copy)
        return m;
    m.count *= m.src_size;
    m.src_size = m.dst_size = 1;
    return m;
}

static int adasum_move_in(struct gpu_adasum *a, struct err *err)
{
    for (size_t i = 0; i < a->n; i++)
        a->moves[i] = in_bytes(
            a->r.in, (struct fuse_move){.src = gcoll_ptr(a->p->batch->items[i].in),
                                        .dst = a->ours + a->offsets[i],
                                        .count = a->counts[i],
                                        .src_size = a->size,
                                        .dst_size = a->wire_size});
    return gcoll_moves(a->p, a->r.in, a->moves, a->n, a->r.in_scale, 1, err);
}

static int adasum_move_out(struct gpu_adasum *a, struct err *err)
{
    const struct batch *b = a->p->batch;
    size_t n = 0;

    if (b->coll == COLL_REDUCE && b->root != a->p->c->me)
        return 0;
    for (size_t i = 0; i < a->n; i++)
        if (b->items[i].out)
            a->moves[n++] =
                in_bytes(a->r.out, (struct fuse_move){.src = a->ours + a->offsets[i],
                                                      .dst = gcoll_ptr(b->items[i].out),
                                                      .count = a->counts[i],
                                                      .src_size = a->wire_size,
                                                      .dst_size = a->size});
    return gcoll_moves(a->p, a->r.out, a->moves, n, a->r.out_scale, a->r.out_divisor,
                       err);
}

/* --- a pair --- */

static uint64_t n_elements(const struct gpu_adasum *a)
{
    return a->plan.bytes / a->wire_size;
}

/* All packed tensors, including the gaps. */
static int
adasum_narrow(struct gpu_adasum *a, cu_ptr wide, cu_ptr half, struct err *err)
{
    const struct fuse_move m = {.src = wide,
                                .dst = half,
                                .count = n_elements(a),
                                .src_size = a->wire_size,
                                .dst_size = HALF_SIZE};

    return gcoll_moves(a->p, a->narrow, &m, 1, 1, 1, err);
}

static int adasum_widen(struct gpu_adasum *a, cu_ptr half, cu_ptr wide, struct err *err)
{
    const struct fuse_move m = {.src = half,
                                .dst = wide,
                                .count = n_elements(a),
                                .src_size = HALF_SIZE,
                                .dst_size = a->wire_size};

    return gcoll_moves(a->p, a->widen, &m, 1, 1, 1, err);
}

/* Rounds ours as it is sent; its 16-bit copy is in half_ours. */
static int round_ours(struct gpu_adasum *a, struct err *err)
{
    int rc = adasum_narrow(a, a->ours, a->half_ours, err);

    return rc ? rc : adasum_widen(a, a->half_ours, a->ours, err);
}

/* Sends all of `send` and receives as much into `recv`, in one group; 0: skip. */
static int adasum_send_recv(
    struct gpu_adasum *a, uint32_t peer, cu_ptr send, cu_ptr recv, struct err *err)
{
    struct gcoll_calls calls = {0};
    const struct gcoll_call call = {.count = n_elements(a),
                                    .dtype =
                                        a->is_halved ? a->half_dtype : a->r.nccl_dtype,
                                    .peer = (int)peer};
    struct gcoll_call there = call, back = call;
    int rc = 0;

    there.kind = CALL_SEND;
    there.in = send;
    back.kind = CALL_RECV;
    back.out = recv;
    if (send)
        rc = gcoll_add(&calls, there, err);
    if (recv && !rc)
        rc = gcoll_add(&calls, back, err);
    if (!rc)
        rc = gcoll_make(a->p, &calls, err);
    mem_free(calls.v);
    return rc;
}

/* Sends ours if `sends`, and receives into `recv` if that is not 0. */
static int adasum_exchange(
    struct gpu_adasum *a, uint32_t peer, bool sends, cu_ptr recv, struct err *err)
{
    if (!a->is_halved)
        return adasum_send_recv(a, peer, sends ? a->ours : 0, recv, err);
    int rc = sends ? round_ours(a, err) : 0;
    if (!rc)
        rc = adasum_send_recv(a, peer, sends ? a->half_ours : 0,
                              recv ? a->half_theirs : 0, err);
    return rc || !recv ? rc : adasum_widen(a, a->half_theirs, recv, err);
}

/* The table of chunks from src to dst. */
static int adasum_take_table(
    struct gpu_adasum *a, cu_ptr src, cu_ptr dst, cu_ptr *ret, struct err *err)
{
    uint64_t at = 0;

    for (size_t i = 0; i < a->n; i++) {
        const struct fuse_move m = pair_move(a, i, src, dst);
        at += fuse_chunks(&m, a->chunks + at);
    }
    return table_take(a->p->g->tables, a->chunks, a->n_chunks, a->p->s, ret, err);
}

/* Combines the vectors at `low` and `high`. The result becomes ours, the other place
 * theirs. */
static int
adasum_combine_pair(struct gpu_adasum *a, cu_ptr low, cu_ptr high, struct err *err)
{
    const bool is_wide = a->r.wire == DT_F64;
    const struct gpu_launch *l = a->p->g->launch;
    struct args_dots dots = {.sums = a->sums, .n = a->n_chunks};
    struct args_dots_end end = {
        .sums = a->sums, .weights = a->weights, .n = (uint32_t)a->n};
    struct args_combine both = {.weights = a->weights, .n = a->n_chunks};
    cu_stream s = a->p->s;
    int rc = adasum_take_table(a, low, high, &dots.chunks, err);

    if (!rc)
        rc = table_take(a->p->g->tables, a->tensors, end.n, s, &end.tensors, err);
    if (!rc)
        rc = adasum_take_table(a, high, low, &both.chunks, err);
    if (!rc)
        rc = launch_kernel(l, is_wide ? KERNEL_dots_f64 : KERNEL_dots_f32, dots.n,
                           &dots, s, err);
    if (!rc)
        rc = launch_kernel(l, KERNEL_dots_end, end.n, &end, s, err);
    if (!rc)
        rc = launch_kernel(l, is_wide ? KERNEL_combine_f64 : KERNEL_combine_f32, both.n,
                           &both, s, err);
    a->ours = low;
    a->theirs = high;
    return rc;
}

static uint32_t gcoll_tree_size(uint32_t n)
{
    uint32_t p = 1;

    while (p <= n / 2)
        p *= 2;
    return p;
}

static int run_tree(struct gpu_adasum *a, struct err *err)
{
    const uint32_t me = a->p->c->me, n = a->p->c->n, p = gcoll_tree_size(n);
    int rc = 0;

    if (me >= p) { /* not in the tree */
        rc = adasum_exchange(a, me - p, true, 0, err);
        return rc ? rc : adasum_exchange(a, me - p, false, a->ours, err);
    }
    if (me + p < n) {
        rc = adasum_exchange(a, me + p, false, a->theirs, err);
        if (!rc)
            rc = adasum_combine_pair(a, a->ours, a->theirs, err);
    }
    for (uint32_t d = 1; d < p && !rc; d *= 2) {
        rc = adasum_exchange(a, me ^ d, true, a->theirs, err);
        if (!rc && (me & d) == 0)
            rc = adasum_combine_pair(a, a->ours, a->theirs, err);
        else if (!rc)
            rc = adasum_combine_pair(a, a->theirs, a->ours, err);
    }
    if (!rc && me + p < n)
        return adasum_exchange(a, me + p, true, 0, err);
    return rc || !a->is_halved ? rc : round_ours(a, err);
}

int gcoll_adasum(struct gcoll_post *p, struct err *err)
{
    struct gpu_adasum a = {.p = p};
    int rc = adasum_begin(&a, err);

    p->packed_bytes = GCOLL_ALL_PACKED;
    if (!rc && a.n_chunks > 0) {
        rc = find_memory(&a, err);
        if (!rc)
            rc = adasum_move_in(&a, err);
        if (!rc)
            rc = run_tree(&a, err);
        if (!rc)
            rc = adasum_move_out(&a, err);
    }
    adasum_release(&a);
    return rc;
}
