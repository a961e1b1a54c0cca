/* SPDX-License-Identifier: Apache-2.0 */
/* Puts the steps of one batch onto a stream: kernels and groups of NCCL calls. The
 * launcher's; it waits only until NCCL has accepted them.
 *
 * The NCCL calls are a function of the batch and of the communicator's terms (rule
 * R2). What belongs to this rank alone (addresses, zeros of a rank that has joined)
 * changes kernels and copies only. */
#ifndef RUNTIME_BACKEND_NCCL_GCOLL_H
#define RUNTIME_BACKEND_NCCL_GCOLL_H

#include "runtime/backend/nccl/comm.h"
#include "runtime/backend/nccl/fuse.h"

struct gcoll_post {
    struct comm *c;
    struct device *g;
    const struct batch *batch;
    cu_stream s;
    uint32_t index;         /* of the stream and of the communicator on it */
    const enum dtype *wire; /* of wider floats: DT_F16 or DT_BF16; NULL: as they are */
    bool is_named;          /* the error already names its rank */
    uint64_t packed_bytes;  /* of tensors, through the fusion buffer; for counters */
};

#define GCOLL_ALL_PACKED UINT64_MAX /* packed_bytes: of all tensors */

/* The post of a job with a batch. It borrows the job. */
static inline struct gcoll_post gcoll_post_of(struct device *g,
                                              const struct gpu_job *job)
{
    return (struct gcoll_post){
        .c = job->comm,
        .g = g,
        .batch = &job->batch,
        .s = job->stream,
        .index = job->stream_index,
    };
}
/* No NCCL calls: a set of one, or a batch that is_alone. */
static inline bool gcoll_is_alone(const struct gcoll_post *p)
{
    return p->c->n_nc == 0 || p->batch->is_alone;
}
/* A JOB_BATCH; the hook of the device. */
int gcoll_run(struct device *g, struct gpu_job *job, struct err *err);

/* Any batch, for callers that compose one. */
int gcoll_put(struct gcoll_post *p, struct err *err);

/* gcoll_reduce.c: ALLREDUCE, REDUCE, REDUCESCATTER, but ADASUM. */
int gcoll_reduce(struct gcoll_post *p, struct err *err);
/* gcoll_adasum.c: ADASUM, of ALLREDUCE and REDUCE. */
int gcoll_adasum(struct gcoll_post *p, struct err *err);
/* gcoll_move.c: BROADCAST, ALLGATHER, GATHER, ALLTOALL, SENDRECV. */
int gcoll_move(struct gcoll_post *p, struct err *err);

/* --- gcoll_calls.c, for these --- */

/* NCCL calls that are collected and made in one group. */
struct gcoll_call {
    enum gcoll_kind {
        CALL_ALL_REDUCE,
        CALL_REDUCE,
        CALL_REDUCE_SCATTER,
        CALL_BROADCAST,
        CALL_ALL_GATHER,
        CALL_SEND,
        CALL_RECV
    } kind;
    cu_ptr in, out;
    uint64_t count;
    int dtype, op, peer; /* peer: root too */
    uint64_t group; /* calls with another number go into another group; ascending */
};
struct gcoll_calls {
    struct gcoll_call *v; /* mem_free */
    size_t n, cap;
};
/* Calls of no elements are left out. */
int gcoll_add(struct gcoll_calls *calls, struct gcoll_call call, struct err *err);
/* Makes the calls, in groups of at most GCOLL_MAX_CALLS; none: nothing. */
#define GCOLL_MAX_CALLS 2048
int gcoll_make(struct gcoll_post *p, const struct gcoll_calls *calls, struct err *err);

/* --- gcoll_kernels.c, for these --- */

/* m[n] cut into chunks, in device memory; *ret_n 0: nothing to do. */
int gcoll_table(struct gcoll_post *p,
                const struct fuse_move *m,
                size_t n,
                cu_ptr *ret,
                uint32_t *ret_n,
                struct err *err);
/* The chunks of m[n]; the caller frees *ret with mem_free; *ret_n 0: none. */
int gcoll_chunks(const struct fuse_move *m,
                 size_t n,
                 struct chunk **ret,
                 uint32_t *ret_n,
                 struct err *err);
/* Kernel k over a table of them; n_chunks 0: nothing. */
int gcoll_launch(struct gcoll_post *p,
                 enum kernel_id k,
                 cu_ptr table,
                 uint32_t n_chunks,
                 double scale,
                 uint32_t divisor,
                 struct err *err);
/* Kernel k over all of m[n]. */
int gcoll_moves(struct gcoll_post *p,
                enum kernel_id k,
                const struct fuse_move *m,
                size_t n,
                double scale,
                uint32_t divisor,
                struct err *err);
/* Copies bytes from src to dst, on the stream; nothing if they are equal. */
int gcoll_copy(
    struct gcoll_post *p, cu_ptr dst, cu_ptr src, uint64_t bytes, struct err *err);
int gcoll_zero(struct gcoll_post *p, cu_ptr dst, uint64_t bytes, struct err *err);
uint64_t gcoll_counts_sum(const uint64_t *v, uint32_t n);
bool gcoll_counts_are_equal(const uint64_t *v, uint32_t n);
static inline cu_ptr gcoll_ptr(const void *p)
{
    return (cu_ptr)(uintptr_t)p;
}

#endif
