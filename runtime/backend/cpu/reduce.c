/* SPDX-License-Identifier: Apache-2.0 */
/* Selects the kernel build for this CPU and turns (op, postscale) into a finish.
 *
 * The CPU is queried by CPUID directly: that costs nothing at this rate (once per
 * batch) and needs no compiler run-time object, which differs between gcc, clang and
 * zig. Called by coll.c. */
#include "runtime/backend/cpu/reduce.h"

#if defined(__x86_64__)

#include <cpuid.h>

static bool cpu_has_avx2_f16c(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return false;
    bool osxsave = c & (1u << 27);
    bool f16c = c & (1u << 29);
    if (!osxsave || !f16c)
        return false;
    unsigned lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    if ((lo & 6) != 6) /* the kernel saves XMM and YMM */
        return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & (1u << 5));
}

#else

static bool cpu_has_avx2_f16c(void)
{
    return false;
}

#endif

bool kernel_has_wide(void)
{
    return kernels_avx2[FOLD_SUM][DT_F32].fold != NULL && cpu_has_avx2_f16c();
}

/* FOLD_COUNT: none. */
static enum fold fold_of(enum reduce_op op)
{
    switch (op) {
    case OP_AVERAGE:
    case OP_SUM:
        return FOLD_SUM;
    case OP_MIN:
        return FOLD_MIN;
    case OP_MAX:
        return FOLD_MAX;
    case OP_PRODUCT:
        return FOLD_PRODUCT;
    case OP_ADASUM:
    case OP_COUNT:
        break;
    }
    return FOLD_COUNT;
}

const struct reduce_kernel *kernel_for(enum reduce_op op, enum dtype t, bool wide)
{
    enum fold f = fold_of(op);
    if (f == FOLD_COUNT || !reduction_supported(op, t))
        return NULL;
    return wide ? &kernels_avx2[f][t] : &kernels_base[f][t];
}

static bool is_float(enum dtype t)
{
    return t == DT_F16 || t == DT_BF16 || t == DT_F32 || t == DT_F64;
}

struct finish
finish_of(enum dtype t, enum reduce_op op, double postscale, uint32_t n_ranks)
{
    struct finish f = {postscale, 1};
    if (op != OP_AVERAGE)
        return f;
    if (is_float(t) || postscale != 1.0) /* one rounding of integers, not two */
        f.factor = postscale / n_ranks;
    else
        f.divisor = n_ranks;
    return f;
}
