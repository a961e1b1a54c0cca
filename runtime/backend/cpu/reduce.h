/* SPDX-License-Identifier: Apache-2.0 */
/* Reduction kernels: one row an operation and dtype, in two builds of the same source
 * (baseline x86-64 or other machine, and AVX2 + F16C) of which the running CPU picks
 * one. Pure. */
#ifndef RUNTIME_BACKEND_CPU_REDUCE_H
#define RUNTIME_BACKEND_CPU_REDUCE_H

#include <stdbool.h>

#include "runtime/core/types.h"

/* What happens to a complete result. Floating point: times factor (divisor is folded
 * in). Integers: divided by divisor toward zero, or times factor in double, toward zero
 * and saturating; an average that is scaled too is one multiplication. bool: false
 * where factor is 0, else as it is. */
struct finish {
    double factor;
    uint64_t divisor;
};
#define FINISH_NONE ((struct finish){1.0, 1})
struct finish
finish_of(enum dtype t, enum reduce_op op, double postscale, uint32_t n_ranks);

struct reduce_kernel {
    size_t elem_bytes;
    /* dst[i] = finish(src[0][i] o src[1][i] o ... o src[n_src - 1][i]), from left to
     * right, where o is the row's operation; also to dst2 unless NULL. Destinations may
     * equal a source exactly, not overlap it otherwise. n_src >= 1.
     * 16-bit floats are computed in float32 and rounded once; sums and products of
     * integers wrap; MIN and MAX of a NaN and anything are NaN; bools become 0 or 1. */
    void (*fold)(void *dst,
                 void *dst2,
                 const void *const *src,
                 size_t n_src,
                 size_t n,
                 const struct finish *f);
};

/* Does this CPU support the wide (AVX2) build? Slow: call once. */
bool kernel_has_wide(void);
/* The row of (op, t); AVERAGE's is SUM's. NULL where reduction_supported() is false and
 * for ADASUM, which is not a fold of elements. wide: only if kernel_has_wide(). */
const struct reduce_kernel *kernel_for(enum reduce_op op, enum dtype t, bool wide);

/* The two tables, for reduce.c. */
enum fold { FOLD_SUM, FOLD_MIN, FOLD_MAX, FOLD_PRODUCT, FOLD_COUNT };
extern const struct reduce_kernel kernels_base[FOLD_COUNT][DT_COUNT];
/* all zero where it cannot be built */
extern const struct reduce_kernel kernels_avx2[FOLD_COUNT][DT_COUNT];

#endif
