/* SPDX-License-Identifier: Apache-2.0 */
/* Reduction kernels: one row a dtype, in two builds of the same source (baseline x86-64
 * or other machine, and AVX2 + F16C) of which the running CPU picks one. Pure. */
#ifndef RUNTIME_BACKEND_CPU_REDUCE_H
#define RUNTIME_BACKEND_CPU_REDUCE_H

#include <stdbool.h>

#include "runtime/core/types.h"

/* What happens to a complete sum. Floating point: times factor (divisor is folded in).
 * Integers: divided by divisor toward zero, then times factor in double, toward zero
 * and saturating. */
struct finish {
    double factor;
    uint64_t divisor;
};
#define FINISH_NONE ((struct finish){1.0, 1})
struct finish
finish_of(enum dtype t, enum reduce_op op, double postscale, uint32_t n_ranks);

struct kernel {
    size_t elem_bytes;
    /* dst[i] = finish(src[0][i] + ... + src[n_src - 1][i]), also to dst2 unless NULL.
     * Destinations may equal a source exactly, not overlap it otherwise. n_src >= 1.
     * 16-bit floats are summed in float32 and rounded once; integers wrap. */
    void (*sum)(void *dst,
                void *dst2,
                const void *const *src,
                size_t n_src,
                size_t n,
                const struct finish *f);
};

/* Does this CPU run the wide (AVX2) build? Slow: ask once. */
bool kernel_has_wide(void);
/* The row of dtype t, NULL when it is not reducible. wide: only if kernel_has_wide().
 */
const struct kernel *kernel_for(enum dtype t, bool wide);

/* The two tables, by dtype; for reduce.c. */
extern const struct kernel kernels_base[DT_COUNT];
extern const struct kernel
    kernels_avx2[DT_COUNT]; /* all zero where it cannot be built */

#endif
