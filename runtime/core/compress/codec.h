/* SPDX-License-Identifier: Apache-2.0 */
/* Compressed allreduce: the codecs, their cost, the state that they keep between steps,
 * and how a coordinator runs one. Pure; one thread at a time uses a codec_state and the
 * runs on it.
 *
 *   name      parameters (default)                  on the wire            summed by
 *   none                                            the tensor             allreduce
 *   fp16                                            float16                allreduce
 *   bf16                                            bfloat16               allreduce
 *   int8      block=256..1024 (512), feedback=1     int8.h                 the codec
 *   topk      ratio=0.000000001..1 (0.01) or        topk.h                 the codec
 *             k=1.., feedback=1
 *   powersgd  rank=1..64 (4), seed=0, feedback=1    P and Q, float32       allreduce
 *
 * Written as text: "topk:ratio=0.001,feedback=0". All ranks must name the same codec
 * with the same parameters for a tensor: the text that codec_format writes is what
 * ranks compare (equal codecs have equal text).
 *
 * What can be compressed: allreduce of f32 and f64 (int8, topk, powersgd: of f16 and
 * bf16 too; they work in float32). fp16 and bf16 take every operation; int8, topk and
 * powersgd take SUM and AVERAGE. A tensor that cannot be compressed, or whose
 * compression would not reduce traffic, is sent as it is; plan.why has the reason,
 * which is the same on every rank. 1-d tensors are not matrices and are sent as they
 * are under powersgd, as in the paper and in PyTorch.
 *
 * With feedback=1 what a step did not send is added to the same tensor's next step:
 * over any number of steps the sum of the results is the sum of the inputs less the
 * last residuals. A NaN or infinity reaches the result (int8: its block is NaN;
 * powersgd: the whole tensor is NaN) and is not kept: residuals are always finite.
 *
 * How a coordinator uses it, for each tensor of a response that names a codec:
 *
 *     codec_plan(&codec, dtype, op, shape..., n_members, &plan, err);
 *     if (!plan.is_compressed)  -> an ordinary batch
 *     codec_begin(&run, state, set, name, &plan, &io, scratch, err);
 *     while ((r = codec_next(&run, &step, err)) > 0)
 *         post step as an ordinary batch of the backend and wait for it
 *     r == 0: io.out holds the result; r < 0: err is set; the tensor's state is dropped
 *
 * Several tensors are fused by calling codec_next on all their runs and posting the
 * steps of equal coll, dtype, op and postscale as one batch; results do not depend on
 * it. plan.scratch_bytes is transient and may be one piece of memory for a batch. A
 * rank that has joined runs the same with io.in NULL (and out NULL): it contributes
 * zeros and keeps its residual. codec_cancel ends a run whose step could not be carried
 * out. State does not outlive a world: codec_state_clear when one is re-formed. */
#ifndef RUNTIME_CORE_COMPRESS_CODEC_H
#define RUNTIME_CORE_COMPRESS_CODEC_H

#include "runtime/base/err.h"
#include "runtime/core/types.h"

/* --- codecs and their text --- */

enum codec_id { /* wire and API values, never change */
                CODEC_NONE,
                CODEC_FP16,
                CODEC_BF16,
                CODEC_INT8,
                CODEC_TOPK,
                CODEC_POWERSGD,
                CODEC_COUNT
};

struct codec { /* parameters that the codec does not have are 0 */
    enum codec_id id;
    bool has_feedback;
    uint32_t block;     /* int8 */
    uint32_t ratio_ppb; /* topk: parts of 10^9; 0: k counts */
    uint64_t k;         /* topk */
    uint32_t rank;      /* powersgd */
    uint64_t seed;      /* powersgd */
};

#define CODEC_TEXT_MAX 80 /* what codec_format writes, with NUL */

const char *codec_name(enum codec_id id);
/* On GPUs, where cuBLAS does its products. */
static inline bool codec_needs_library(enum codec_id id)
{
    return id == CODEC_POWERSGD;
}
/* field is the name in error messages ("HVD_COMPRESSION"). A text of NULL or "" means
 * none. -EINVAL. */
int codec_parse(const char *field,
                const char *text,
                struct codec *ret,
                struct err *err);
/* Parses back to the same codec. Returns buf, which holds CODEC_TEXT_MAX bytes. */
char *codec_format(const struct codec *c, char *buf);
bool codec_equal(const struct codec *a, const struct codec *b);

/* --- what a tensor costs --- */

enum codec_way {                    /* how members' data is combined */
                 CODEC_WAY_PASS,    /* not compressed */
                 CODEC_WAY_SUM,     /* one allreduce of 16-bit floats */
                 CODEC_WAY_GATHER,  /* one allgather; each member sums */
                 CODEC_WAY_SHARDS,  /* alltoall, each member sums its part; allgather */
                 CODEC_WAY_FACTORS, /* allreduce of P, allreduce of Q */
                 CODEC_WAY_COUNT
};

struct codec_plan {
    struct codec codec;
    enum dtype dtype;
    enum reduce_op op;
    uint32_t n_members;
    uint64_t count;
    bool is_compressed;
    const char *why; /* not compressed: "a world of one sends nothing"; static */
    enum codec_way way;
    uint64_t raw_bytes; /* the tensor */
    /* One member's encoding of the tensor. SHARDS: all its messages to the owners, and
     * also all messages that it gets back with the sums. */
    uint64_t wire_bytes;
    /* What a member sends with ring algorithms, the mean over members; raw: without
     * compression. */
    uint64_t sent_bytes, sent_raw_bytes;
    uint64_t state_bytes;   /* kept between steps, at most */
    uint64_t scratch_bytes; /* of one run */
    uint64_t k;             /* topk */
    uint64_t rows, cols;    /* powersgd */
};

/* Of a tensor with ndim dimensions among n_members. A function of its arguments alone,
 * equal on all ranks. -EINVAL: a dimension is negative, the size exceeds 2^60 bytes. */
int codec_plan(const struct codec *c,
               enum dtype dtype,
               enum reduce_op op,
               uint32_t ndim,
               const int64_t *shape,
               uint32_t n_members,
               struct codec_plan *ret,
               struct err *err);

/* --- what is kept between steps: residuals and PowerSGD's Q, by set and name --- */

struct codec_state;

/* is_wide: this CPU has AVX2 and F16C (the caller checks); results are the same. At
 * most max_bytes of residuals; beyond that the residual of the tensor that was used
 * least recently is dropped (codec_state_evicted counts these; the caller logs it).
 * -ENOMEM. */
int codec_state_new(uint64_t max_bytes, bool is_wide, struct codec_state **ret);
void codec_state_free(struct codec_state *s);  /* accepts NULL; no run may be open */
void codec_state_clear(struct codec_state *s); /* likewise */
void codec_state_forget(struct codec_state *s, uint32_t set, const char *name);
void codec_state_forget_set(struct codec_state *s,
                            uint32_t set); /* the set was removed */
uint64_t codec_state_bytes(const struct codec_state *s);
uint64_t codec_state_evicted(const struct codec_state *s);
/* Creates the tensor's state, so that codec_begin needs no memory: zeros where there is
 * none or it is of another shape, type, codec or membership. -ENOMEM; -ENOSPC: exceeds
 * max_bytes by itself or in addition to running tensors; with an error message. */
int codec_reserve(struct codec_state *s,
                  uint32_t set,
                  const char *name,
                  const struct codec_plan *plan,
                  uint32_t me,
                  struct err *err);

/* --- a run: one tensor, one step of training --- */

struct codec_io {
    uint32_t me;    /* member, 0 to n_members - 1 */
    const void *in; /* NULL: zeros, and the residual is unchanged */
    void *out;      /* may equal in; NULL: no result wanted */
    double prescale, postscale;
};

/* What is to be communicated next: the fields of a batch with one item (backend.h).
 * Valid until the next codec_next. */
struct codec_step {
    enum collective coll; /* ALLREDUCE, ALLGATHER, ALLTOALL */
    enum dtype dtype;     /* gathered and exchanged: u8 */
    enum reduce_op op;
    double postscale; /* prescale is 1 always */
    const void *in;
    void *out;
    uint64_t count;              /* allreduce: elements */
    const uint64_t *counts;      /* allgather, alltoall: from each member */
    const uint64_t *send_counts; /* alltoall: to each member */
};

enum codec_phase { /* the collective in progress; codec.c draws the edges */
                   CODEC_PHASE_READY,
                   CODEC_PHASE_SUM,
                   CODEC_PHASE_GATHER,
                   CODEC_PHASE_SHARDS,
                   CODEC_PHASE_SHARD_SUMS,
                   CODEC_PHASE_P,
                   CODEC_PHASE_Q,
                   CODEC_PHASE_DONE,
                   CODEC_PHASE_FAILED,
                   CODEC_PHASE_COUNT
};

struct codec_run { /* the caller's storage, codec.c's fields */
    enum codec_phase phase;
    struct codec_plan plan;
    struct codec_io io;
    struct codec_state *state;
    struct codec_tensor *tensor; /* NULL: nothing is kept */
    const struct codec_kernels *kernels;
    uint8_t *scratch;
};

/* scratch: plan->scratch_bytes, aligned to 64, until the run ends. Copies plan and io.
 * Allocates only what codec_reserve would have. -EINVAL: the plan is not compressed;
 * -EBUSY: the tensor is being run; errors of codec_reserve. */
int codec_begin(struct codec_run *run,
                struct codec_state *s,
                uint32_t set,
                const char *name,
                const struct codec_plan *plan,
                const struct codec_io *io,
                void *scratch,
                struct err *err);
/* 1: carry out *ret, then call again; 0: done; -EBADMSG: a member's message is invalid,
 * the error names the member. Ended runs stay ended: 0 or -EINVAL again. */
int codec_next(struct codec_run *run, struct codec_step *ret, struct err *err);
/* Ends a run early and drops the tensor's state, which may be half updated. Does
 * nothing to an ended one. */
void codec_cancel(struct codec_run *run);

#endif
