/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA kernels as functions of the CPU, found by the names that they have in the
 * image. */
#ifndef TESTS_FAKES_CUDA_KERNELS_CPU_H
#define TESTS_FAKES_CUDA_KERNELS_CPU_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/backend/nccl/kernels/args.h"

struct cpu_kernel {
    const char *symbol; /* "hvd_copy" */
    size_t args_bytes;  /* of its one argument */
    /* One block. Blocks may run in any order and on several threads. */
    void (*block)(const void *args, unsigned block, unsigned blocks);
};

extern const struct cpu_kernel cpu_kernels[KERNEL_COUNT]; /* by enum kernel_id */

/* NULL: no kernel has that name. */
const struct cpu_kernel *cpu_kernel_find(const char *symbol);
/* All blocks, in an order that seed shuffles. */
void cpu_kernel_run(const struct cpu_kernel *k,
                    const void *args,
                    unsigned blocks,
                    uint64_t seed);

#endif
