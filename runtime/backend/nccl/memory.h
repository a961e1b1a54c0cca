/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory in stream order: results for users, scratch for batches. One object a
 * device and process, which is never freed: results outlive the world that made them.
 * From a pool of our own (cuMemAllocFromPoolAsync, release threshold pool_bytes) where
 * the device has pools, else from cuMemAlloc with a free list by size class and an
 * event a block. Nothing here waits for the device, and no stream is made to wait for
 * another one's work (that could close a circle through other ranks), unless pools and
 * memory are both lacking. Any thread, our context current. */
#ifndef RUNTIME_BACKEND_NCCL_MEMORY_H
#define RUNTIME_BACKEND_NCCL_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/backend/nccl/event.h"

struct gpu_memory;

/* kept_bytes: what stays allocated between results. */
int memory_new(const struct cuda_api *cu,
               cu_ctx ctx,
               cu_device dev,
               uint64_t kept_bytes,
               struct gpu_memory **ret,
               struct err *err);
void memory_free(struct gpu_memory *m); /* tests only; accepts NULL */
/* In a forked child: from here on nothing is called. */
void memory_forget(struct gpu_memory *m);
/* At least 256 bytes, aligned to 256; usable on s from here on. -ENOMEM. */
int memory_take(
    struct gpu_memory *m, uint64_t bytes, cu_stream s, cu_ptr *ret, struct err *err);
/* A stream of the process's on which memory is taken that several streams will use:
 * nothing else is put on it, so whoever waits for it waits for nothing. */
cu_stream memory_own(const struct gpu_memory *m);
/* After what is in s now. p 0: nothing. Never fails: what cannot be freed is leaked. */
void memory_give(struct gpu_memory *m, cu_ptr p, cu_stream s);

#endif
