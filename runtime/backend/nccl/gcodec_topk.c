/* SPDX-License-Identifier: Apache-2.0 */
/* Top-k on the device, in the messages of core/compress/topk.h and with its bits; each
 * step is one launch for all tensors of a batch (kernels/topk.cu):
 *
 *   0  add to the state, select, write into our place of all messages -> allgather
 *   1  sum in member order
 *
 * Scratch of a batch: messages of all members, each member's of all tensors one after
 * the other; working copies where nothing is kept; marks and numbers per chunk; a cell
 * of counters per tensor. A member that has joined sends pairs of zeros. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>

#include "runtime/backend/nccl/gcodec.h"
#include "runtime/backend/nccl/launch.h"
#include "runtime/backend/nccl/nccl_dl.h"
#include "runtime/backend/nccl/table.h"
#include "runtime/base/mem.h"
#include "runtime/core/compress/topk.h"

enum { MARKS_BYTES = 256 * sizeof(uint32_t), ZEROS_EACH = 1u << 14 };
_Static_assert(sizeof(struct topk_tensor) == 2 * sizeof(struct chunk),
               "is passed in a table of chunks");

static uint64_t topk_count_chunks(uint64_t count)
{
    return (count + TOPK_CHUNK - 1) / TOPK_CHUNK;
}

static uint64_t topk_scratch_bytes(const struct codec_plan *plan)
{
    const uint64_t n = topk_count_chunks(plan->count);
    uint64_t at = 0;

    for (uint32_t i = 0; i < plan->n_members; i++)
        (void)gcodec_piece(&at, plan->wire_bytes);
    if (!plan->codec.has_feedback)
        (void)gcodec_piece(&at, plan->count * sizeof(float));
    (void)gcodec_piece(&at, n * MARKS_BYTES);
    (void)gcodec_piece(&at, n * sizeof(struct topk_found));
    (void)gcodec_piece(&at, sizeof(struct topk_cell));
    return at;
}

/* A batch; the pieces that topk_scratch_bytes counts, of all tensors, by kind. */
struct topk {
    struct gcoll_post *p;
    const struct gcodec_item *v;
    size_t n;
    cu_ptr all, marks, found, cells;
    uint64_t each;               /* bytes of a member's messages */
    struct topk_tensor *tensors; /* [n] */
    struct chunk *chunks;
    uint32_t n_chunks;
    cu_ptr tensor_table;
};

static void topk_release(struct topk *k)
{
    mem_free(k->tensors);
    mem_free(k->chunks);
}

static int topk_place_scratch(struct topk *k, struct err *err)
{
    uint64_t at = 0, n_chunks = 0, pairs = 0;

    k->tensors = mem_calloc(k->n, sizeof(*k->tensors));
    if (!k->tensors)
        return err_set(err, -ENOMEM, "out of memory for a batch of %zu tensors", k->n);
    for (size_t i = 0; i < k->n; i++) {
        const struct codec_plan *plan = k->v[i].plan;
        struct topk_tensor *x = &k->tensors[i];

        x->wire = gcodec_piece(&k->each, plan->wire_bytes);
        x->k = plan->k;
        x->width = topk_index_bytes(plan->count);
        pairs += plan->k / ZEROS_EACH + 1;
    }
    k->all = k->v[0].scratch;
    at = k->all + k->each * k->p->c->n;
    for (size_t i = 0; i < k->n; i++) {
        const struct gcodec_item *it = &k->v[i];
        struct topk_tensor *x = &k->tensors[i];

        x->w = it->residual;
        if (!it->plan->codec.has_feedback)
            x->w = gcodec_piece(&at, it->plan->count * sizeof(float));
        x->first = n_chunks;
        n_chunks += topk_count_chunks(it->plan->count);
    }
    k->marks = gcodec_piece(&at, n_chunks * MARKS_BYTES);
    k->found = gcodec_piece(&at, n_chunks * sizeof(struct topk_found));
    k->cells = gcodec_piece(&at, k->n * sizeof(struct topk_cell));
    if (n_chunks > INT_MAX || pairs > INT_MAX)
        return err_set(err, -E2BIG, "%" PRIu64 " pieces in one batch", n_chunks);
    n_chunks = n_chunks > pairs ? n_chunks : pairs;
    k->chunks = mem_calloc(n_chunks, sizeof(*k->chunks));
    return k->chunks
               ? 0
               : err_set(err, -ENOMEM,
                         "out of memory for %" PRIu64 " pieces of tensors", n_chunks);
}

/* --- 0: messages --- */

/* Chunks of tensors with input; the rest have none. */
static void cut_inputs(struct topk *k)
{
    k->n_chunks = 0;
    for (size_t i = 0; i < k->n; i++) {
        const struct gcodec_item *it = &k->v[i];
        const uint64_t size = dtype_size(it->plan->dtype), count = it->plan->count;
        struct topk_tensor *x = &k->tensors[i];

        x->first = k->n_chunks;
        x->n_chunks = it->in ? topk_count_chunks(count) : 0;
        for (uint64_t at = 0; it->in && at < count; at += TOPK_CHUNK)
            k->chunks[k->n_chunks++] = (struct chunk){
                .src = it->in + at * size,
                .dst = x->w + at * sizeof(float),
                .n = (uint32_t)(count - at < TOPK_CHUNK ? count - at : TOPK_CHUNK),
                .tensor = (uint32_t)i};
    }
}

static void cut_zeros(struct topk *k)
{
    k->n_chunks = 0;
    for (size_t i = 0; i < k->n; i++)
        for (uint64_t at = 0; !k->v[i].in && at < k->tensors[i].k; at += ZEROS_EACH) {
            const uint64_t left = k->tensors[i].k - at;

            k->chunks[k->n_chunks++] =
                (struct chunk){.src = at,
                               .n = (uint32_t)(left < ZEROS_EACH ? left : ZEROS_EACH),
                               .tensor = (uint32_t)i};
        }
}

static int take_chunks(struct topk *k, cu_ptr *ret, struct err *err)
{
    return k->n_chunks == 0
               ? 0
               : table_take(k->p->g->tables, k->chunks, k->n_chunks, k->p->s, ret, err);
}

static int take_tensors(struct topk *k, struct err *err)
{
    return table_take(k->p->g->tables, (const void *)k->tensors, (uint32_t)k->n * 2,
                      k->p->s, &k->tensor_table, err);
}

static const enum kernel_id feeds[DT_COUNT] = {[DT_F32] = KERNEL_topk_feed_f32,
                                               [DT_F64] = KERNEL_topk_feed_f64,
                                               [DT_F16] = KERNEL_topk_feed_f16,
                                               [DT_BF16] = KERNEL_topk_feed_bf16};

static int topk_encode_batch(struct topk *k, struct args_topk *a, struct err *err)
{
    const struct {
        enum kernel_id id;
        bool of_tensors;
        uint8_t digit;
    } steps[] = {
        {feeds[k->v[0].plan->dtype], false, 0}, {KERNEL_topk_digit, true, 0},
        {KERNEL_topk_count, false, 1},          {KERNEL_topk_digit, true, 1},
        {KERNEL_topk_count, false, 2},          {KERNEL_topk_digit, true, 2},
        {KERNEL_topk_mark, false, 0},           {KERNEL_topk_place, true, 0},
        {KERNEL_topk_pick, false, 0},
    };
    int rc = gcoll_zero(k->p, k->cells, k->n * sizeof(struct topk_cell), err);

    for (size_t i = 0; i < ARRAY_LEN(steps) && !rc; i++) {
        a->n = steps[i].of_tensors ? (uint32_t)k->n : k->n_chunks;
        a->digit = steps[i].digit;
        rc = launch_kernel(k->p->g->launch, steps[i].id, a->n, a, k->p->s, err);
    }
    return rc;
}

static int topk_add_messages(struct topk *k, struct gcoll_calls *calls, struct err *err)
{
    const cu_ptr mine = k->all + k->p->c->me * k->each;
    struct args_topk a = {.cells = k->cells,
                          .marks = k->marks,
                          .found = k->found,
                          .wire = mine,
                          .scale = k->v[0].prescale,
                          .adds = k->v[0].plan->codec.has_feedback};
    int rc;

    cut_inputs(k);
    rc = take_tensors(k, err);
    a.tensors = k->tensor_table;
    if (!rc)
        rc = take_chunks(k, &a.chunks, err);
    if (!rc && k->n_chunks > 0)
        rc = topk_encode_batch(k, &a, err);
    cut_zeros(k);
    if (!rc)
        rc = take_chunks(k, &a.chunks, err);
    a.n = k->n_chunks;
    if (!rc)
        rc = launch_kernel(k->p->g->launch, KERNEL_topk_zeros, a.n, &a, k->p->s, err);
    return rc ? rc
              : gcoll_add(calls,
                          (struct gcoll_call){.kind = CALL_ALL_GATHER,
                                              .in = mine,
                                              .out = k->all,
                                              .count = k->each,
                                              .dtype = NCCL_U8},
                          err);
}

/* --- 1: sums --- */

static const enum kernel_id sums[DT_COUNT] = {[DT_F32] = KERNEL_topk_sum_f32,
                                              [DT_F64] = KERNEL_topk_sum_f64,
                                              [DT_F16] = KERNEL_topk_sum_f16,
                                              [DT_BF16] = KERNEL_topk_sum_bf16};

static void cut_outputs(struct topk *k)
{
    k->n_chunks = 0;
    for (size_t i = 0; i < k->n; i++) {
        const struct gcodec_item *it = &k->v[i];
        const uint64_t size = dtype_size(it->plan->dtype), count = it->plan->count;

        for (uint64_t at = 0; it->out && at < count; at += TOPK_CHUNK)
            k->chunks[k->n_chunks++] = (struct chunk){
                .src = at,
                .dst = it->out + at * size,
                .n = (uint32_t)(count - at < TOPK_CHUNK ? count - at : TOPK_CHUNK),
                .tensor = (uint32_t)i};
    }
}

static int topk_sum_messages(struct topk *k, struct err *err)
{
    struct args_topk_sum a = {.wire = k->all,
                              .stride = k->each,
                              .factor = k->v[0].factor,
                              .members = k->p->c->n};
    int rc = take_tensors(k, err);

    cut_outputs(k);
    a.tensors = k->tensor_table;
    a.n = k->n_chunks;
    if (!rc)
        rc = take_chunks(k, &a.chunks, err);
    return rc ? rc
              : launch_kernel(k->p->g->launch, sums[k->v[0].plan->dtype], a.n, &a,
                              k->p->s, err);
}

static int topk_run_round(struct gcoll_post *p,
                          const struct gcodec_item *v,
                          size_t n,
                          unsigned round,
                          struct gcoll_calls *calls,
                          struct err *err)
{
    struct topk k = {.p = p, .v = v, .n = n};
    int rc = topk_place_scratch(&k, err);

    if (!rc)
        rc =
            round == 0 ? topk_add_messages(&k, calls, err) : topk_sum_messages(&k, err);
    topk_release(&k);
    return rc;
}

const struct gcodec_row gcodec_topk = {
    .n_rounds = 2,
    .scratch_bytes = topk_scratch_bytes,
    .batch = topk_run_round,
};
