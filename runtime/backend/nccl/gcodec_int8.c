/* SPDX-License-Identifier: Apache-2.0 */
/* int8 on the device, in the messages of core/compress/int8.h and with its bits.
 *
 *   2 members   0 code into our place of all messages -> allgather
 *               1 sum in member order
 *   more        0 code each shard -> to its owner
 *               1 sum our shard, code the sums -> allgather
 *               2 decode
 *
 * Messages of shards lie as far apart as the longest one, that of member 0, so that one
 * ncclAllGather takes them; who has a shorter one sends up to a block more. No message
 * needs to be aligned: the kernels read and write bytes. */
#include <limits.h>

#include "runtime/backend/nccl/gcodec.h"
#include "runtime/backend/nccl/launch.h"
#include "runtime/backend/nccl/nccl_dl.h"
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

static uint32_t blocks_of(uint64_t count, uint32_t block)
{
    const uint64_t n = int8_n_blocks(count, block);

    return n < INT_MAX ? (uint32_t)n : INT_MAX;
}

static int
code(struct post *p, const struct args_int8_code *args, enum dtype t, struct err *err)
{
    return launch_kernel(p->g->launch, kernels[t].code,
                         blocks_of(args->count, args->block), args, p->s, err);
}

static int
sum(struct post *p, const struct args_int8_sum *args, enum dtype t, struct err *err)
{
    return launch_kernel(p->g->launch, kernels[t].sum,
                         blocks_of(args->count, args->block), args, p->s, err);
}

/* Our message lies in its place of `all`; `bytes` of each member. */
static int gather(const struct post *p,
                  cu_ptr all,
                  uint64_t bytes,
                  struct gcoll_calls *calls,
                  struct err *err)
{
    return gcoll_add(calls,
                     (struct gcoll_call){.kind = CALL_ALL_GATHER,
                                         .in = all + p->c->me * bytes,
                                         .out = all,
                                         .count = bytes,
                                         .dtype = NCCL_U8},
                     err);
}

/* The tensor as one message. */
static struct args_int8_code tensor_of(const struct gcodec_item *it, cu_ptr wire)
{
    return (struct args_int8_code){.in = it->in,
                                   .wire = wire,
                                   .residual = it->residual,
                                   .count = it->plan->count,
                                   .scale = it->prescale,
                                   .block = it->plan->codec.block};
}

/* --- 2 members --- */

static int gather_round(struct post *p,
                        const struct gcodec_item *it,
                        unsigned round,
                        struct gcoll_calls *calls,
                        struct err *err)
{
    const struct codec_plan *plan = it->plan;
    const cu_ptr ours = it->scratch + p->c->me * plan->wire_bytes;
    const struct args_int8_code in = tensor_of(it, ours);
    const struct args_int8_sum out = {.wire = it->scratch,
                                      .stride = plan->wire_bytes,
                                      .out = it->out,
                                      .count = plan->count,
                                      .factor = it->factor,
                                      .n = p->c->n,
                                      .block = plan->codec.block};

    if (round > 0)
        return round > 1 || !it->out ? 0 : sum(p, &out, plan->dtype, err);
    int rc = it->in ? code(p, &in, plan->dtype, err)
                    : gcoll_zero(p, ours, plan->wire_bytes, err);
    return rc ? rc : gather(p, it->scratch, plan->wire_bytes, calls, err);
}

/* --- more --- */

struct shards {
    cu_ptr send; /* to each owner; of each owner afterwards: `stride` apart */
    cu_ptr recv; /* our shard, of each member */
    cu_ptr sums; /* of it, float32 */
    uint64_t stride;
    uint64_t bytes;
    struct codec_shard mine;
};

static struct shards place(const struct codec_plan *plan, cu_ptr scratch, uint32_t me)
{
    const struct codec_shard longest = codec_shard_of(plan, 0);
    struct shards s = {.stride = longest.wire_bytes, .mine = codec_shard_of(plan, me)};
    const uint64_t all = longest.wire_bytes * plan->n_members;

    s.send = scratch + gcodec_piece(&s.bytes, all);
    s.recv = scratch + gcodec_piece(&s.bytes, all);
    s.sums = scratch + gcodec_piece(&s.bytes, longest.count * sizeof(float));
    return s;
}

/* All shards become messages: ours where we sum it, the others where they are sent
 * from. */
static int code_shards(struct post *p,
                       const struct gcodec_item *it,
                       const struct shards *s,
                       struct err *err)
{
    const uint32_t me = p->c->me, n = p->c->n;
    const uint64_t mine = s->mine.wire_bytes;
    struct args_int8_code args = tensor_of(it, s->send);

    if (!it->in) {
        int rc = gcoll_zero(p, s->send, s->stride * n, err);
        return rc ? rc : gcoll_zero(p, s->recv + me * mine, mine, err);
    }
    args.n_shards = n;
    args.stride = s->stride;
    args.me = me;
    args.own = s->recv + me * mine;
    return code(p, &args, it->plan->dtype, err);
}

static int send_shards(struct post *p,
                       const struct gcodec_item *it,
                       const struct shards *s,
                       struct gcoll_calls *calls,
                       struct err *err)
{
    int rc = code_shards(p, it, s, err);

    for (uint32_t j = 0; j < p->c->n && !rc; j++) {
        struct gcoll_call call = {.kind = CALL_SEND,
                                  .in = s->send + j * s->stride,
                                  .count = codec_shard_of(it->plan, j).wire_bytes,
                                  .dtype = NCCL_U8,
                                  .peer = (int)j};

        if (j == p->c->me)
            continue;
        rc = gcoll_add(calls, call, err);
        call.kind = CALL_RECV;
        call.in = 0;
        call.out = s->recv + j * s->mine.wire_bytes;
        call.count = s->mine.wire_bytes;
        rc = rc ? rc : gcoll_add(calls, call, err);
    }
    return rc;
}

static int sum_mine(struct post *p,
                    const struct gcodec_item *it,
                    const struct shards *s,
                    struct gcoll_calls *calls,
                    struct err *err)
{
    const uint32_t block = it->plan->codec.block;
    const struct args_int8_sum of = {.wire = s->recv,
                                     .stride = s->mine.wire_bytes,
                                     .out = s->sums,
                                     .count = s->mine.count,
                                     .factor = 1,
                                     .n = p->c->n,
                                     .block = block};
    const struct args_int8_code to = {.in = s->sums,
                                      .wire = s->send + p->c->me * s->stride,
                                      .residual = it->shard,
                                      .count = s->mine.count,
                                      .scale = 1,
                                      .block = block};
    int rc = sum(p, &of, DT_F32, err);

    rc = rc ? rc : code(p, &to, DT_F32, err);
    return rc ? rc : gather(p, s->send, s->stride, calls, err);
}

static int decode(struct post *p,
                  const struct gcodec_item *it,
                  const struct shards *s,
                  struct err *err)
{
    const struct args_int8_sum args = {.wire = s->send,
                                       .stride = s->stride,
                                       .out = it->out,
                                       .count = it->plan->count,
                                       .factor = it->factor,
                                       .n = 1,
                                       .block = it->plan->codec.block,
                                       .n_shards = p->c->n};

    return it->out ? sum(p, &args, it->plan->dtype, err) : 0;
}

static int shards_round(struct post *p,
                        const struct gcodec_item *it,
                        unsigned round,
                        struct gcoll_calls *calls,
                        struct err *err)
{
    const struct shards s = place(it->plan, it->scratch, p->c->me);

    if (round == 0)
        return send_shards(p, it, &s, calls, err);
    return round == 1 ? sum_mine(p, it, &s, calls, err) : decode(p, it, &s, err);
}

/* --- the row --- */

static uint64_t scratch_bytes(const struct codec_plan *plan)
{
    if (plan->way == CODEC_WAY_GATHER)
        return plan->wire_bytes * plan->n_members;
    return place(plan, 0, 0).bytes;
}

static int run_round(struct post *p,
                     const struct gcodec_item *it,
                     unsigned round,
                     struct gcoll_calls *calls,
                     struct err *err)
{
    return it->plan->way == CODEC_WAY_GATHER ? gather_round(p, it, round, calls, err)
                                             : shards_round(p, it, round, calls, err);
}

const struct gcodec_row gcodec_int8 = {
    .n_rounds = 3,
    .scratch_bytes = scratch_bytes,
    .round = run_round,
};
