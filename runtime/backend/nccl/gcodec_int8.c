/* SPDX-License-Identifier: Apache-2.0 */
/* int8 on the device, in the messages of core/compress/int8.h and with its bits. One
 * launch encodes all tensors of a batch, one sums them, and one transfer moves them.
 *
 *   2 members   0 encode into our place of all messages -> allgather
 *               1 sum in member order
 *   more        0 encode each shard -> to its owner
 *               1 sum our shard, encode the sums -> allgather
 *               2 decode
 *
 * What goes to one member, or comes from one, is one piece: a place per tensor, as
 * long as its longest message (the whole one, or that of shard 0), so pieces are equal
 * on all members. Where blocks do not divide, that is up to one block more per tensor.
 * No message is aligned: the kernels read and write bytes. */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "runtime/backend/nccl/gcodec.h"
#include "runtime/backend/nccl/launch.h"
#include "runtime/backend/nccl/nccl_dl.h"
#include "runtime/backend/nccl/table.h"
#include "runtime/base/mem.h"
#include "runtime/core/compress/int8.h"
#include "runtime/core/compress/layout.h"

/* --- kernels --- */

static const struct {
    enum kernel_id code, sum;
} kernels[DT_COUNT] = {
    [DT_F32] = {KERNEL_int8_code_f32, KERNEL_int8_sum_f32},
    [DT_F64] = {KERNEL_int8_code_f64, KERNEL_int8_sum_f64},
    [DT_F16] = {KERNEL_int8_code_f16, KERNEL_int8_sum_f16},
    [DT_BF16] = {KERNEL_int8_code_bf16, KERNEL_int8_sum_bf16},
};

/* One round of a batch: what one kernel encodes and another sums. */
struct int8_round {
    struct gcoll_post *p;
    struct int8_code *codes; /* room for all tensors; mem_free */
    struct int8_sum *sums;   /* likewise */
    uint32_t n_codes, n_sums;
    uint64_t code_blocks, sum_blocks;
    uint64_t piece;   /* of a member */
    cu_ptr send, all; /* n pieces: to members, and of members */
    cu_ptr shards;    /* the sums of our shards, float32 */
};

static void add_code(struct int8_round *w, struct int8_code c)
{
    c.n_blocks = int8_n_blocks(c.count, c.block);
    c.first = w->code_blocks;
    w->code_blocks += c.n_blocks;
    if (c.n_blocks > 0)
        w->codes[w->n_codes++] = c;
}

static void add_sum(struct int8_round *w, struct int8_sum s)
{
    s.n_blocks = int8_n_blocks(s.count, s.block);
    s.first = w->sum_blocks;
    w->sum_blocks += s.n_blocks;
    if (s.n_blocks > 0)
        w->sums[w->n_sums++] = s;
}

/* Tables hold chunks: the number of chunks in one of our structs. */
enum {
    CODE_CHUNKS = sizeof(struct int8_code) / sizeof(struct chunk),
    SUM_CHUNKS = sizeof(struct int8_sum) / sizeof(struct chunk)
};
_Static_assert(CODE_CHUNKS * sizeof(struct chunk) == sizeof(struct int8_code), "size");
_Static_assert(SUM_CHUNKS * sizeof(struct chunk) == sizeof(struct int8_sum), "size");

static int int8_upload(struct gcoll_post *p,
                       const void *v,
                       uint32_t n_chunks,
                       cu_ptr *ret,
                       struct err *err)
{
    AUTOFREE struct chunk *chunks = mem_calloc(n_chunks, sizeof(*chunks));

    if (!chunks)
        return err_set(err, -ENOMEM, "out of memory for a batch of tensors");
    memcpy(chunks, v, n_chunks * sizeof(*chunks));
    return table_take(p->g->tables, chunks, n_chunks, p->s, ret, err);
}

static uint32_t grid_of(uint64_t n_blocks)
{
    return n_blocks < INT_MAX ? (uint32_t)n_blocks : INT_MAX;
}

static int code_all(const struct int8_round *w, enum dtype t, struct err *err)
{
    struct args_int8_code args = {.n_blocks = w->code_blocks, .n = w->n_codes};
    cu_ptr at;

    if (w->n_codes == 0)
        return 0;
    int rc = int8_upload(w->p, w->codes, w->n_codes * CODE_CHUNKS, &at, err);
    if (rc)
        return rc;
    args.tensors = at;
    return launch_kernel(w->p->g->launch, kernels[t].code, grid_of(w->code_blocks),
                         &args, w->p->s, err);
}

static int sum_all(const struct int8_round *w, enum dtype t, struct err *err)
{
    struct args_int8_sum args = {.n_blocks = w->sum_blocks, .n = w->n_sums};
    cu_ptr at;

    if (w->n_sums == 0)
        return 0;
    int rc = int8_upload(w->p, w->sums, w->n_sums * SUM_CHUNKS, &at, err);
    if (rc)
        return rc;
    args.tensors = at;
    return launch_kernel(w->p->g->launch, kernels[t].sum, grid_of(w->sum_blocks), &args,
                         w->p->s, err);
}

/* Our piece is in its place of `all`. */
static int int8_gather(const struct int8_round *w,
                       cu_ptr all,
                       struct gcoll_calls *calls,
                       struct err *err)
{
    return gcoll_add(calls,
                     (struct gcoll_call){.kind = CALL_ALL_GATHER,
                                         .in = all + w->p->c->me * w->piece,
                                         .out = all,
                                         .count = w->piece,
                                         .dtype = NCCL_U8},
                     err);
}

/* A piece of `send` to each other member, and theirs into `all`. */
static int
int8_exchange(const struct int8_round *w, struct gcoll_calls *calls, struct err *err)
{
    int rc = 0;

    for (uint32_t j = 0; j < w->p->c->n && !rc; j++) {
        struct gcoll_call call = {.kind = CALL_SEND,
                                  .in = w->send + j * w->piece,
                                  .count = w->piece,
                                  .dtype = NCCL_U8,
                                  .peer = (int)j};

        if (j == w->p->c->me)
            continue;
        rc = gcoll_add(calls, call, err);
        call.kind = CALL_RECV;
        call.in = 0;
        call.out = w->all + j * w->piece;
        rc = rc ? rc : gcoll_add(calls, call, err);
    }
    return rc;
}

/* The tensor as one message. */
static struct int8_code int8_tensor_of(const struct gcodec_item *it, cu_ptr wire)
{
    return (struct int8_code){.in = it->in,
                              .wire = wire,
                              .residual = it->residual,
                              .count = it->plan->count,
                              .scale = it->prescale,
                              .block = it->plan->codec.block};
}

/* Messages start at offset `at` of each piece. */
static struct int8_sum int8_sum_of(const struct int8_round *w,
                                   const struct gcodec_item *it,
                                   cu_ptr from,
                                   uint64_t at,
                                   cu_ptr out)
{
    return (struct int8_sum){.wire = from + at,
                             .stride = w->piece,
                             .out = out,
                             .count = it->plan->count,
                             .factor = it->factor,
                             .n = w->p->c->n,
                             .block = it->plan->codec.block};
}

/* --- 2 members --- */

static int gather_round(struct int8_round *w,
                        const struct gcodec_item *it,
                        uint64_t at,
                        unsigned round,
                        struct err *err)
{
    const cu_ptr ours = w->all + w->p->c->me * w->piece + at;

    if (round == 1 && it->out)
        add_sum(w, int8_sum_of(w, it, w->all, at, it->out));
    if (round > 0)
        return 0;
    if (!it->in)
        return gcoll_zero(w->p, ours, it->plan->wire_bytes, err);
    add_code(w, int8_tensor_of(it, ours));
    return 0;
}

/* --- more --- */

/* Encodes all shards: ours into the memory where it is summed, the rest into send
 * buffers. */
static int code_shards(struct int8_round *w,
                       const struct gcodec_item *it,
                       uint64_t at,
                       struct err *err)
{
    const uint32_t me = w->p->c->me, n = w->p->c->n;
    const uint64_t longest = codec_shard_of(it->plan, 0).wire_bytes;
    const cu_ptr own = w->all + me * w->piece + at;
    struct int8_code c = int8_tensor_of(it, w->send + at);
    int rc = 0;

    if (!it->in) {
        for (uint32_t j = 0; j < n && !rc; j++)
            rc = gcoll_zero(w->p, w->send + j * w->piece + at, longest, err);
        return rc ? rc : gcoll_zero(w->p, own, longest, err);
    }
    c.n_shards = n;
    c.stride = w->piece;
    c.me = me;
    c.own = own;
    add_code(w, c);
    return 0;
}

/* Sums our shard and encodes the sums; the message replaces what was sent. */
static void
sum_mine(struct int8_round *w, const struct gcodec_item *it, uint64_t at, cu_ptr sums)
{
    const uint64_t count = codec_shard_of(it->plan, w->p->c->me).count;
    struct int8_sum s = int8_sum_of(w, it, w->all, at, sums);

    s.count = count;
    s.factor = 1;
    add_sum(w, s);
    add_code(w, (struct int8_code){.in = sums,
                                   .wire = w->send + w->p->c->me * w->piece + at,
                                   .residual = it->shard,
                                   .count = count,
                                   .scale = 1,
                                   .block = it->plan->codec.block});
}

static void int8_decode(struct int8_round *w, const struct gcodec_item *it, uint64_t at)
{
    struct int8_sum s = int8_sum_of(w, it, w->send, at, it->out);

    s.n_shards = s.n;
    s.n = 1;
    if (it->out)
        add_sum(w, s);
}

/* --- a batch --- */

static uint64_t piece_of(const struct codec_plan *plan)
{
    return plan->way == CODEC_WAY_GATHER ? plan->wire_bytes
                                         : codec_shard_of(plan, 0).wire_bytes;
}

static uint64_t sums_of(const struct codec_plan *plan)
{
    uint64_t bytes = 0;

    if (plan->way != CODEC_WAY_GATHER)
        (void)gcodec_piece(&bytes, codec_shard_of(plan, 0).count * sizeof(float));
    return bytes;
}

/* The total over all tensors is at least what int8_place_scratch uses. */
static uint64_t int8_scratch_bytes(const struct codec_plan *plan)
{
    uint64_t bytes = sums_of(plan);

    (void)gcodec_piece(&bytes, piece_of(plan) * plan->n_members);
    if (plan->way != CODEC_WAY_GATHER)
        (void)gcodec_piece(&bytes, piece_of(plan) * plan->n_members);
    return bytes;
}

static void
int8_place_scratch(struct int8_round *w, const struct gcodec_item *v, size_t n)
{
    uint64_t at = 0;

    for (size_t i = 0; i < n; i++)
        w->piece += piece_of(v[i].plan);
    w->all = v[0].scratch + gcodec_piece(&at, w->piece * w->p->c->n);
    if (v[0].plan->way != CODEC_WAY_GATHER)
        w->send = v[0].scratch + gcodec_piece(&at, w->piece * w->p->c->n);
    w->shards = v[0].scratch + at;
}

/* Fills the kernels' tables and zeros, and launches the kernels. */
static int run_kernels(struct int8_round *w,
                       const struct gcodec_item *v,
                       size_t n,
                       unsigned round,
                       struct err *err)
{
    const bool is_gather = v[0].plan->way == CODEC_WAY_GATHER;
    uint64_t at = 0;
    cu_ptr sums = w->shards;
    int rc = 0;

    for (size_t i = 0; i < n && !rc; i++) {
        if (is_gather)
            rc = gather_round(w, &v[i], at, round, err);
        else if (round == 0)
            rc = code_shards(w, &v[i], at, err);
        else if (round == 1)
            sum_mine(w, &v[i], at, sums);
        else
            int8_decode(w, &v[i], at);
        at += piece_of(v[i].plan);
        sums += sums_of(v[i].plan);
    }
    const enum dtype t = !is_gather && round == 1 ? DT_F32 : v[0].plan->dtype;
    rc = rc ? rc : sum_all(w, t, err);
    return rc ? rc : code_all(w, t, err);
}

static int int8_run_round(struct gcoll_post *p,
                          const struct gcodec_item *v,
                          size_t n,
                          unsigned round,
                          struct gcoll_calls *calls,
                          struct err *err)
{
    const bool is_gather = v[0].plan->way == CODEC_WAY_GATHER;
    struct int8_round w = {.p = p,
                           .codes = mem_calloc(n, sizeof(*w.codes)),
                           .sums = mem_calloc(n, sizeof(*w.sums))};
    int rc = w.codes && w.sums
                 ? 0
                 : err_set(err, -ENOMEM, "out of memory for a batch of %zu tensors", n);

    if (!rc) {
        int8_place_scratch(&w, v, n);
        rc = run_kernels(&w, v, n, round, err);
    }
    mem_free(w.codes);
    mem_free(w.sums);
    if (rc || round > (is_gather ? 0 : 1))
        return rc;
    if (is_gather)
        return int8_gather(&w, w.all, calls, err);
    return round == 0 ? int8_exchange(&w, calls, err)
                      : int8_gather(&w, w.send, calls, err);
}

const struct gcodec_row gcodec_int8 = {
    .n_rounds = 3,
    .scratch_bytes = int8_scratch_bytes,
    .batch = int8_run_round,
};
