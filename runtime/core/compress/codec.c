/* SPDX-License-Identifier: Apache-2.0 */
/* The state machine of a run: which collective is in progress, and the work when it is
 * complete.
 *
 *   SUM way       READY -narrow-> SUM -widen-> DONE
 *   GATHER way    READY -encode-> GATHER -sum-> DONE
 *   SHARDS way    READY -encode-> SHARDS -sum, encode-> SHARD_SUMS -decode-> DONE
 *   FACTORS way   READY -M Q-> P -orthonormal, M^T P-> Q -P Q^T-> DONE
 *   any way       invalid message -> FAILED;  codec_cancel -> FAILED
 *
 * An edge is a row of the table below; its work fills the next step. Only codec_next
 * advances a run, codec_cancel ends it.
 *
 * The residual is the working copy: a step adds the tensor to it, subtracts what it
 * sends, and what remains is the new residual. A failed run leaves it half updated, so
 * the tensor's state is dropped.
 *
 * Called by the coordinator. */
#include "runtime/core/compress/codec.h"

#include <errno.h>
#include <string.h>

#include "runtime/core/compress/cast.h"
#include "runtime/core/compress/int8.h"
#include "runtime/core/compress/layout.h"
#include "runtime/core/compress/powersgd.h"
#include "runtime/core/compress/topk.h"

typedef int (*work_fn)(struct codec_run *run,
                       const struct codec_layout *l,
                       struct codec_step *ret,
                       struct err *err);

/* The factor of every result that the codec itself has summed. */
static double codec_factor(const struct codec_run *run)
{
    double f = run->io.postscale;

    return run->plan.op == OP_AVERAGE ? f / run->plan.n_members : f;
}

static uint64_t *counts_at(struct codec_run *run, uint64_t offset)
{
    return (uint64_t *)(void *)(run->scratch + offset);
}

static float *floats_at(struct codec_run *run, uint64_t offset)
{
    return (float *)(void *)(run->scratch + offset);
}

/* float32 of the tensor with the residual added: the residual itself, or scratch. */
static float *working_copy(struct codec_run *run, const struct codec_layout *l)
{
    const struct codec_plan *p = &run->plan;
    float *w = floats_at(run, l->work);

    if (!run->tensor || !run->tensor->residual) {
        cast_load(run->kernels, w, run->io.in, p->dtype, p->count, run->io.prescale);
        return w;
    }
    w = run->tensor->residual;
    cast_add(run->kernels, w, run->io.in, p->dtype, p->count, run->io.prescale);
    return w;
}

/* --- fp16, bf16 --- */

static enum dtype wire_dtype(const struct codec_plan *p)
{
    return p->codec.id == CODEC_FP16 ? DT_F16 : DT_BF16;
}

static int sum_begin(struct codec_run *run,
                     const struct codec_layout *l,
                     struct codec_step *ret,
                     struct err *err)
{
    const struct codec_plan *p = &run->plan;
    uint8_t *buf = run->scratch + l->send;

    (void)err;
    if (run->io.in)
        cast_narrow(run->kernels, (uint16_t *)(void *)buf, wire_dtype(p), run->io.in,
                    p->dtype, p->count, run->io.prescale);
    else
        memset(buf, 0, p->wire_bytes);
    /* average and postscale are the backend's: it applies them before it rounds */
    *ret = (struct codec_step){.coll = COLL_ALLREDUCE,
                               .dtype = wire_dtype(p),
                               .op = p->op,
                               .postscale = run->io.postscale,
                               .in = buf,
                               .out = buf,
                               .count = p->count};
    return 0;
}

static int sum_end(struct codec_run *run,
                   const struct codec_layout *l,
                   struct codec_step *ret,
                   struct err *err)
{
    const struct codec_plan *p = &run->plan;
    const uint8_t *buf = run->scratch + l->send;

    (void)ret;
    (void)err;
    if (run->io.out)
        cast_widen(run->kernels, run->io.out, p->dtype,
                   (const uint16_t *)(const void *)buf, wire_dtype(p), p->count);
    return 0;
}

/* --- int8 among few, topk --- */

static void
encode_topk(struct codec_run *run, const struct codec_layout *l, uint8_t *wire)
{
    const struct codec_plan *p = &run->plan;

    if (run->io.in)
        topk_encode(run->kernels, wire, working_copy(run, l), p->count, p->k);
    else
        topk_zeros(wire, p->count, p->k);
}

/* `count` elements from `at` on; zeros decode from zero bytes. */
static void
encode_int8(struct codec_run *run, uint8_t *wire, uint64_t at, uint64_t count)
{
    const struct codec_plan *p = &run->plan;
    float *residual = run->tensor ? run->tensor->residual : NULL;

    if (run->io.in)
        int8_encode(run->kernels, wire, cast_at(run->io.in, p->dtype, at), p->dtype,
                    run->io.prescale, residual ? residual + at : NULL, count,
                    p->codec.block);
    else
        memset(wire, 0, int8_wire_bytes(count, p->codec.block));
}

static int gather_begin(struct codec_run *run,
                        const struct codec_layout *l,
                        struct codec_step *ret,
                        struct err *err)
{
    const struct codec_plan *p = &run->plan;
    uint64_t *counts = counts_at(run, l->counts);
    uint8_t *send = run->scratch + l->send;

    (void)err;
    if (p->codec.id == CODEC_TOPK)
        encode_topk(run, l, send);
    else
        encode_int8(run, send, 0, p->count);
    for (uint32_t i = 0; i < p->n_members; i++)
        counts[i] = p->wire_bytes;
    *ret = (struct codec_step){.coll = COLL_ALLGATHER,
                               .dtype = DT_U8,
                               .op = OP_SUM,
                               .postscale = 1,
                               .in = send,
                               .out = run->scratch + l->recv,
                               .count = p->wire_bytes,
                               .counts = counts};
    return 0;
}

static int sum_topk(struct codec_run *run,
                    const struct codec_layout *l,
                    const uint8_t *wire,
                    struct err *err)
{
    const struct codec_plan *p = &run->plan;
    float *acc = p->dtype == DT_F32 ? run->io.out : floats_at(run, l->sums);
    int rc = topk_sum(acc, wire, p->wire_bytes * p->n_members, p->n_members, p->count,
                      p->k, err);

    if (rc == 0)
        cast_store(run->kernels, run->io.out, p->dtype, acc, p->count,
                   codec_factor(run));
    return rc;
}

static int gather_end(struct codec_run *run,
                      const struct codec_layout *l,
                      struct codec_step *ret,
                      struct err *err)
{
    const struct codec_plan *p = &run->plan;
    const uint8_t *wire = run->scratch + l->recv;

    (void)ret;
    if (!run->io.out)
        return 0;
    if (p->codec.id == CODEC_TOPK)
        return sum_topk(run, l, wire, err);
    return int8_sum(run->kernels, run->io.out, p->dtype, codec_factor(run), wire,
                    p->wire_bytes * p->n_members, p->n_members, p->count,
                    p->codec.block, err);
}

/* --- int8 among many --- */

static int shards_begin(struct codec_run *run,
                        const struct codec_layout *l,
                        struct codec_step *ret,
                        struct err *err)
{
    const struct codec_plan *p = &run->plan;
    uint64_t *counts = counts_at(run, l->counts);
    uint64_t *send_counts = counts_at(run, l->send_counts);
    uint64_t mine = codec_shard_of(p, run->io.me).wire_bytes;
    uint8_t *send = run->scratch + l->send;

    (void)err;
    for (uint32_t i = 0; i < p->n_members; i++) {
        struct codec_shard s = codec_shard_of(p, i);

        encode_int8(run, send + s.wire_at, s.at, s.count);
        send_counts[i] = s.wire_bytes;
        counts[i] = mine;
    }
    *ret = (struct codec_step){.coll = COLL_ALLTOALL,
                               .dtype = DT_U8,
                               .op = OP_SUM,
                               .postscale = 1,
                               .in = send,
                               .out = run->scratch + l->recv,
                               .count = p->wire_bytes,
                               .counts = counts,
                               .send_counts = send_counts};
    return 0;
}

/* Our shard of all members: summed, encoded again (over the received bytes), to all. */
static int shards_sum(struct codec_run *run,
                      const struct codec_layout *l,
                      struct codec_step *ret,
                      struct err *err)
{
    const struct codec_plan *p = &run->plan;
    struct codec_shard s = codec_shard_of(p, run->io.me);
    uint64_t *counts = counts_at(run, l->counts);
    uint8_t *recv = run->scratch + l->recv;
    float *sums = floats_at(run, l->sums);
    int rc = int8_sum(run->kernels, sums, DT_F32, 1, recv, s.wire_bytes * p->n_members,
                      p->n_members, s.count, p->codec.block, err);

    if (rc < 0)
        return rc;
    int8_encode(run->kernels, recv, sums, DT_F32, 1,
                run->tensor ? run->tensor->shard : NULL, s.count, p->codec.block);
    for (uint32_t i = 0; i < p->n_members; i++)
        counts[i] = codec_shard_of(p, i).wire_bytes;
    *ret = (struct codec_step){.coll = COLL_ALLGATHER,
                               .dtype = DT_U8,
                               .op = OP_SUM,
                               .postscale = 1,
                               .in = recv,
                               .out = run->scratch + l->send,
                               .count = s.wire_bytes,
                               .counts = counts};
    return 0;
}

static int shards_end(struct codec_run *run,
                      const struct codec_layout *l,
                      struct codec_step *ret,
                      struct err *err)
{
    const struct codec_plan *p = &run->plan;
    int rc = 0;

    (void)ret;
    if (!run->io.out)
        return 0;
    for (uint32_t i = 0; i < p->n_members && rc == 0; i++) {
        struct codec_shard s = codec_shard_of(p, i);

        rc = int8_sum(run->kernels, cast_at_out(run->io.out, p->dtype, s.at), p->dtype,
                      codec_factor(run), run->scratch + l->send + s.wire_at,
                      s.wire_bytes, 1, s.count, p->codec.block, err);
        if (rc < 0)
            (void)err_prefix(err, "sums of member %u", (unsigned)i);
    }
    return rc;
}

/* --- powersgd --- */

static struct powersgd_shape shape_of(const struct codec_run *run)
{
    const struct codec_plan *p = &run->plan;

    return (struct powersgd_shape){run->kernels, p->rows, p->cols, p->codec.rank};
}

static void
allreduce_f32(struct codec_step *ret, const float *in, float *out, uint64_t n)
{
    *ret = (struct codec_step){.coll = COLL_ALLREDUCE,
                               .dtype = DT_F32,
                               .op = OP_SUM,
                               .postscale = 1,
                               .in = in,
                               .out = out,
                               .count = n};
}

/* P = M Q. A rank without data needs no Q: its P is zero. */
static int factors_begin(struct codec_run *run,
                         const struct codec_layout *l,
                         struct codec_step *ret,
                         struct err *err)
{
    struct powersgd_shape s = shape_of(run);
    float *p = floats_at(run, l->send);

    (void)err;
    if (run->io.in) {
        powersgd_refresh(run->tensor->q, s.cols, s.rank, run->plan.codec.seed);
        powersgd_right(p, working_copy(run, l), run->tensor->q, &s);
    } else {
        memset(p, 0, s.rows * s.rank * sizeof(*p));
    }
    allreduce_f32(ret, p, p, s.rows * s.rank);
    return 0;
}

/* Q = M^T P; own Q and the sum are separate, because the error is taken against our
 * own. */
static int factors_middle(struct codec_run *run,
                          const struct codec_layout *l,
                          struct codec_step *ret,
                          struct err *err)
{
    struct powersgd_shape s = shape_of(run);
    float *p = floats_at(run, l->send), *own = floats_at(run, l->recv);
    bool is_finite = powersgd_orthonormal(p, s.rows, s.rank);

    (void)err;
    if (!is_finite) /* the result is to be NaN everywhere, not where P happens to be */
        for (uint64_t i = 0; i < s.rows * s.rank; i++)
            p[i] = __builtin_nanf("");
    if (run->io.in) {
        float *m =
            run->tensor->residual ? run->tensor->residual : floats_at(run, l->work);

        powersgd_left(own, m, p, &s);
        powersgd_subtract(m, p, own, &s);
    } else {
        memset(own, 0, s.cols * s.rank * sizeof(*own));
    }
    allreduce_f32(ret, own, floats_at(run, l->sums), s.cols * s.rank);
    return 0;
}

static int factors_end(struct codec_run *run,
                       const struct codec_layout *l,
                       struct codec_step *ret,
                       struct err *err)
{
    struct powersgd_shape s = shape_of(run);
    const float *q = floats_at(run, l->sums);

    (void)ret;
    (void)err;
    if (run->tensor)
        memcpy(run->tensor->q, q, s.cols * s.rank * sizeof(*q));
    if (run->io.out)
        powersgd_out(run->io.out, run->plan.dtype, codec_factor(run),
                     floats_at(run, l->send), q, &s);
    return 0;
}

/* --- the machine --- */

static const struct codec_edge {
    enum codec_way way;
    enum codec_phase from, to;
    work_fn work;
} edges[] = {
    {CODEC_WAY_SUM, CODEC_PHASE_READY, CODEC_PHASE_SUM, sum_begin},
    {CODEC_WAY_SUM, CODEC_PHASE_SUM, CODEC_PHASE_DONE, sum_end},
    {CODEC_WAY_GATHER, CODEC_PHASE_READY, CODEC_PHASE_GATHER, gather_begin},
    {CODEC_WAY_GATHER, CODEC_PHASE_GATHER, CODEC_PHASE_DONE, gather_end},
    {CODEC_WAY_SHARDS, CODEC_PHASE_READY, CODEC_PHASE_SHARDS, shards_begin},
    {CODEC_WAY_SHARDS, CODEC_PHASE_SHARDS, CODEC_PHASE_SHARD_SUMS, shards_sum},
    {CODEC_WAY_SHARDS, CODEC_PHASE_SHARD_SUMS, CODEC_PHASE_DONE, shards_end},
    {CODEC_WAY_FACTORS, CODEC_PHASE_READY, CODEC_PHASE_P, factors_begin},
    {CODEC_WAY_FACTORS, CODEC_PHASE_P, CODEC_PHASE_Q, factors_middle},
    {CODEC_WAY_FACTORS, CODEC_PHASE_Q, CODEC_PHASE_DONE, factors_end},
};

static const struct codec_edge *edge_of(const struct codec_run *run)
{
    for (size_t i = 0; i < sizeof(edges) / sizeof(edges[0]); i++)
        if (edges[i].way == run->plan.way && edges[i].from == run->phase)
            return &edges[i];
    return NULL;
}

static void codec_run_end(struct codec_run *run, enum codec_phase how)
{
    run->phase = how;
    if (!run->tensor)
        return;
    run->tensor->entry.is_running = false;
    if (how == CODEC_PHASE_FAILED)
        codec_state_drop(run->state, run->tensor);
    run->tensor = NULL;
}

int codec_begin(struct codec_run *run,
                struct codec_state *s,
                uint32_t set,
                const char *name,
                const struct codec_plan *plan,
                const struct codec_io *io,
                void *scratch,
                struct err *err)
{
    char shown[NAME_SHOWN_MAX];
    struct codec_tensor *t = NULL;
    int rc = 0;

    if (!plan->is_compressed)
        return err_set(err, -EINVAL, "compression of %s: %s", name_shown(name, shown),
                       plan->why);
    if (plan->state_bytes > 0) {
        if (io->in) /* a rank without data creates no state but uses an existing one */
            rc = codec_reserve(s, set, name, plan, io->me, err);
        if (rc < 0)
            return rc;
        t = codec_state_find(s, set, name, plan, io->me);
    }
    if (t && t->entry.is_running)
        return err_set(err, -EBUSY, "compression of %s: it is in progress already",
                       name_shown(name, shown));
    if (t)
        t->entry.is_running = true;
    *run = (struct codec_run){.phase = CODEC_PHASE_READY,
                              .plan = *plan,
                              .io = *io,
                              .state = s,
                              .tensor = t,
                              .kernels = codec_state_kernels(s),
                              .scratch = scratch};
    return 0;
}

int codec_next(struct codec_run *run, struct codec_step *ret, struct err *err)
{
    const struct codec_edge *e = edge_of(run);
    struct codec_layout l = codec_layout_scratch(&run->plan);
    int rc;

    if (run->phase == CODEC_PHASE_DONE)
        return 0;
    if (!e)
        return err_set(err, -EINVAL, "compression: the run has failed before");
    rc = e->work(run, &l, ret, err);
    if (rc < 0 || e->to == CODEC_PHASE_DONE)
        codec_run_end(run, rc < 0 ? CODEC_PHASE_FAILED : CODEC_PHASE_DONE);
    else
        run->phase = e->to;
    return rc < 0 ? rc : run->phase != CODEC_PHASE_DONE;
}

void codec_cancel(struct codec_run *run)
{
    if (run->phase != CODEC_PHASE_DONE && run->phase != CODEC_PHASE_FAILED)
        codec_run_end(run, CODEC_PHASE_FAILED);
}
