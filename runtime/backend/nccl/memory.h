/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory in stream order: results for users, scratch for batches. One object
 * per device and process, never freed: results outlive the world that created them.
 * Memory comes from a pool of our own (cuMemAllocFromPoolAsync, release threshold
 * pool_bytes) if the device has pools, else from cuMemAlloc with free lists by size
 * class and an event per block. Nothing here waits for the device, and no stream waits
 * for work of another one (that could close a circle through other ranks), unless both
 * pools and memory are lacking. Any thread, our context current. */
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
/* In a forked child: no CUDA calls from here on. */
void memory_forget(struct gpu_memory *m);
/* At least 256 bytes, aligned to 256; usable on s from here on. -ENOMEM. */
int memory_take(
    struct gpu_memory *m, uint64_t bytes, cu_stream s, cu_ptr *ret, struct err *err);
/* A stream of the process on which memory is taken that several streams will use: it
 * has no other work, so waiting for it is short. */
cu_stream memory_own(const struct gpu_memory *m);
/* Gives p back after the work in s so far. p 0: nothing. Never fails: what cannot be
 * freed is leaked. */
void memory_give(struct gpu_memory *m, cu_ptr p, cu_stream s);

#endif
