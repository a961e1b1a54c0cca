/* SPDX-License-Identifier: Apache-2.0 */
/* hvd_spin, the kernel of tests/gpu/faults_rank.py, on the CPU: it runs until a word in
 * pinned memory is set, or for its time at most. Product kernels are in kernels_cpu.c. */
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "tests/fakes/cuda/fake_cuda.h"
#include "tests/fakes/cuda/kernels_cpu.h"

struct args_spin {
    uint64_t words; /* two uint32_t: not 0: end; 1: it runs, 2: it has ended */
    uint64_t limit_ns;
};

static uint64_t now_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void cpu_spin(const void *args, unsigned block, unsigned blocks)
{
    const struct args_spin *a = args;
    _Atomic uint32_t *words = (void *)(uintptr_t)a->words;
    const uint64_t began_ns = now_ns();
    char value[64];

    (void)blocks;
    if (block != 0)
        return;
    if (!fake_is_pinned((const void *)(uintptr_t)a->words, 2 * sizeof(*words)))
        hvd_fake_die("hvd_spin: its words are not in pinned memory");
    atomic_store(&words[1], 1);
    while (!atomic_load(&words[0]) && now_ns() - began_ns < a->limit_ns
           && !hvd_fake_fault("spin_ends_early", value))
        (void)nanosleep(&(struct timespec){0, 200000}, NULL);
    atomic_store(&words[1], 2);
}

static const struct cpu_kernel spin = {"hvd_spin", sizeof(struct args_spin), cpu_spin};

const struct cpu_kernel *fake_test_kernel(const char *symbol)
{
    return strcmp(symbol, spin.symbol) == 0 ? &spin : NULL;
}
