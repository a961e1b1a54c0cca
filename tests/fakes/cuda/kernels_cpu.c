/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels compiled for the CPU (see kernel.h), and a table of them. Blocks run in
 * a shuffled order, because their order on a device is undefined: code that depends on
 * it fails here with some seed. Used by the fake driver and by the kernels' unit
 * tests, so that the sanitizers see the kernels. */
#include "tests/fakes/cuda/kernels_cpu.h"

#include <string.h>

#include "runtime/backend/nccl/kernels/kernels.cu"

#define ROW(name, args) [KERNEL_##name] = {"hvd_" #name, sizeof(args), cpu_##name},
const struct cpu_kernel cpu_kernels[KERNEL_COUNT] = {KERNELS(ROW)};

const struct cpu_kernel *cpu_kernel_find(const char *symbol)
{
    for (size_t i = 0; i < KERNEL_COUNT; i++)
        if (strcmp(cpu_kernels[i].symbol, symbol) == 0)
            return &cpu_kernels[i];
    return NULL;
}

static unsigned divisor_of(unsigned a, unsigned b)
{
    while (b != 0) {
        unsigned r = a % b;
        a = b;
        b = r;
    }
    return a;
}

void cpu_kernel_run(const struct cpu_kernel *k,
                    const void *args,
                    unsigned blocks,
                    uint64_t seed)
{
    /* a step without a common divisor comes to each block once */
    unsigned step = (unsigned)(seed % blocks) | 1u;
    while (divisor_of(blocks, step) != 1)
        step += 2;
    for (unsigned i = 0; i < blocks; i++)
        k->block(args, (unsigned)((seed + (uint64_t)i * step) % blocks), blocks);
}
