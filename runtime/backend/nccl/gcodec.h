/* SPDX-License-Identifier: Apache-2.0 */
/* Compressed allreduces of device memory. All rounds of a batch are put onto the
 * stream one after the other, without reading results; sizes are known beforehand.
 * Plans, formats and the state kept between steps are those of core/compress, and so
 * are the bits, where neither NCCL nor cuBLAS sums.
 *
 *   gcodec.c         the row of device_ops; the launcher's job: rounds, calls
 *   gcodec_state.c   state of tensors in device memory, by process set and name
 *   gcodec_int8.c    one codec each: a row of functions
 *   gcodec_topk.c
 *   gcodec_power.c
 *
 * fp16 and bf16 have no row: they are ordinary batches with a narrower wire type. */
#ifndef RUNTIME_BACKEND_NCCL_GCODEC_H
#define RUNTIME_BACKEND_NCCL_GCODEC_H

#include "runtime/backend/nccl/gcoll.h"
#include "runtime/core/compress/codec.h"

/* One compressed tensor of a batch. */
struct gcodec_item {
    const struct codec_plan *plan;
    cu_ptr in;       /* 0: zeros, and the state is unchanged (a rank that has joined) */
    cu_ptr out;      /* 0: no result; may equal in */
    double prescale; /* of inputs */
    double factor; /* of results that the codec sums: postscale, share of an AVERAGE */
    /* State: as many floats as codec_kept_of returns; 0: none. Zeros at first. A rank
     * that has joined may have none. */
    cu_ptr residual, shard, q;
    cu_ptr scratch; /* row->scratch_bytes, aligned to 256, kept between rounds */
};

/* A codec. In each round a tensor launches its kernels onto p->s and adds the NCCL
 * calls that follow; these are made when several tensors have added theirs, and before
 * the next round of any. The calls are a function of plan and p->c->terms alone (rule
 * R2). The fusion buffer belongs to the frame: a round uses its scratch. The last
 * round adds no calls. */
struct gcodec_row {
    unsigned n_rounds;
    /* The seat, before the first batch: opens libraries. -ENOTSUP: missing on this
     * rank. NULL: none are required. */
    int (*open)(struct device *g, struct err *err);
    /* The seat, for each plan: 0, or -ENOTSUP and a message that is the same on all
     * members. NULL: always 0. */
    int (*check)(const struct comm *c, const struct codec_plan *plan, struct err *err);
    /* A function of plan and member number alone; it does not overflow. */
    uint64_t (*scratch_bytes)(const struct codec_plan *plan);
    int (*round)(struct gcoll_post *p,
                 const struct gcodec_item *it,
                 unsigned round,
                 struct gcoll_calls *calls,
                 struct err *err);
    /* Instead of round, if one launch processes all tensors: v[n] are all of a batch,
     * of one codec, dtype and scale; their scratch is one piece, in their order. */
    int (*batch)(struct gcoll_post *p,
                 const struct gcodec_item *v,
                 size_t n,
                 unsigned round,
                 struct gcoll_calls *calls,
                 struct err *err);
};
extern const struct gcodec_row gcodec_int8, gcodec_topk, gcodec_powersgd;

/* Offsets into scratch: the next `bytes`, aligned to 256. */
static inline uint64_t gcodec_piece(uint64_t *at, uint64_t bytes)
{
    uint64_t here = *at;

    *at += (bytes + 255) / 256 * 256;
    return here;
}

/* --- gcodec.c --- */

/* device_ops.codec_open; the seat. */
int gcodec_open(struct backend *b, const struct codec_plan *plan, struct err *err);
/* device_ops.post_codec; the seat. -ENOTSUP: the same message on all members, nothing
 * was started, and the device works. */
int gcodec_post(struct backend *b,
                const struct batch *batch,
                const char *const *names,
                uint32_t set,
                const struct codec_plan *plans,
                uint64_t *ret_ticket,
                struct err *err);
/* JOB_CODEC; the launcher. */
int gcodec_run(struct device *g, struct gpu_job *job, struct err *err);

/* --- gcodec_power.c --- */

/* The device's cuBLAS handle and its workspace, created by the first batch that needs
 * them; the launcher's. Our streams are idle, our context is current; accepts NULL. */
struct gcodec_blas;
void gcodec_blas_free(struct gcodec_blas *b, struct device *g);

/* --- gcodec_state.c --- */

/* The index belongs to the seat. The launcher takes device memory and gives it back,
 * in the order of batches. */
struct gcodec_states;
struct gcodec_kept; /* of one tensor */

int gcodec_states_new(uint64_t max_bytes, struct gcodec_states **ret);
/* Nothing of it is in use any more; our context is current; accepts NULL. */
void gcodec_states_free(struct gcodec_states *s, struct device *g);

/* The seat. ret[n]: the state of the tensors of one batch, NULL for none; reserves
 * room for it. Tensors without input create none. -ENOSPC, -ENOMEM with a message.
 * *ret_number: the batch's, for gcodec_states_begin. */
int gcodec_states_reserve(struct gcodec_states *s,
                          const struct batch *batch,
                          const char *const *names,
                          uint32_t set,
                          const struct codec_plan *plans,
                          uint32_t me,
                          struct gcodec_kept **ret,
                          uint64_t *ret_number,
                          struct err *err);
/* device_ops.state_forget_set; the seat. */
void gcodec_forget_set(struct device *g, uint32_t set);
uint64_t gcodec_states_bytes(const struct gcodec_states *s); /* the seat */
uint64_t gcodec_states_evicted(const struct gcodec_states *s);

/* The launcher, before the first kernel of batch `number`: the stream waits for the
 * batch before, if that was on another one; state dropped until then is given back. */
int gcodec_states_begin(struct device *g,
                        uint64_t number,
                        struct gpu_job *job,
                        struct err *err);
/* Puts the memory of the state, zeros at first, into *it. */
int gcodec_states_find(struct device *g,
                       struct gcodec_kept *k,
                       cu_stream s,
                       struct gcodec_item *it,
                       struct err *err);

#endif
