/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of chunks in device memory, for the kernels. A training step requests the
 * same ones repeatedly, so the last 32 are kept by content and uploaded once. The
 * launcher's alone. */
#ifndef RUNTIME_BACKEND_NCCL_TABLE_H
#define RUNTIME_BACKEND_NCCL_TABLE_H

#include "runtime/backend/nccl/kernels/args.h"
#include "runtime/backend/nccl/memory.h"
#include "runtime/backend/nccl/scratch.h"

#define TABLES_KEPT 32

/* One table; zero: none. */
struct table_entry {
    cu_stream stream; /* its uploads and its kernels */
    cu_ptr at;        /* 0: none */
    struct chunk *chunks;
    uint32_t n, max; /* max: room of both */
    uint64_t hash, used;
};

struct tables {
    const struct cuda_api *cu;
    struct gpu_memory *memory;
    struct gpu_scratch *scratch;
    /* Called while all pinned memory is in use, or another thread holds the context
     * that is to be captured: 0 to try again, or an error. */
    int (*wait)(void *arg, struct err *err);
    void *arg;
    uint64_t clock;
    uint64_t n_hits, n_uploads; /* for statistics and tests */
    struct table_entry kept[TABLES_KEPT];
};

/* The pointers outlive it. */
void tables_init(struct tables *t,
                 const struct cuda_api *cu,
                 struct gpu_memory *memory,
                 struct gpu_scratch *scratch,
                 int (*wait)(void *arg, struct err *err),
                 void *arg);
void tables_release(struct tables *t);

/* v[n] in device memory, for kernels launched on s before this function is called
 * TABLES_KEPT more times. v is copied. n >= 1. -ENOMEM, wait's errors, CUDA's. */
int table_take(struct tables *t,
               const struct chunk *v,
               uint32_t n,
               cu_stream s,
               cu_ptr *ret,
               struct err *err);

/* The same with an entry of the caller, which keeps its address as long as n does not
 * grow and s stays: a captured graph reads it. On error e is empty. */
int table_put(struct tables *t,
              struct table_entry *e,
              const struct chunk *v,
              uint32_t n,
              cu_stream s,
              struct err *err);
void table_drop(struct tables *t, struct table_entry *e);

#endif
