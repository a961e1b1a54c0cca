/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels on a device. */
#ifndef RUNTIME_BACKEND_NCCL_LAUNCH_H
#define RUNTIME_BACKEND_NCCL_LAUNCH_H

#include "runtime/backend/nccl/cuda_dl.h"
#include "runtime/backend/nccl/image.h"
#include "runtime/backend/nccl/kernels/args.h"

struct gpu_launch {
    const struct cuda_api *cu;
    cu_module module; /* NULL: not loaded */
    struct image_part part;
    uint32_t max_blocks; /* as many as run at once */
    cu_func funcs[KERNEL_COUNT];
};

/* Loads the part for a GPU of compute capability sm (90) with so many multiprocessors;
 * our context is current. wants_ptx: make the driver compile it, for tests. A driver
 * that refuses the cubin gets the PTX. -ENOTSUP with a message: nothing fits. The
 * image and cu outlive it. */
int launch_init(struct gpu_launch *l,
                const struct cuda_api *cu,
                const void *image,
                size_t bytes,
                int sm,
                int n_multiprocessors,
                bool wants_ptx,
                struct err *err);
void launch_release(
    struct gpu_launch *l); /* our context current; accepts what is zero */
/* Launches kernel k on s, one block per chunk up to the number that runs at once;
 * args: k's struct of args.h, read before it returns. n_chunks 0: nothing. */
int launch_kernel(const struct gpu_launch *l,
                  enum kernel_id k,
                  uint32_t n_chunks,
                  const void *args,
                  cu_stream s,
                  struct err *err);

#endif
