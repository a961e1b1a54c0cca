/* SPDX-License-Identifier: Apache-2.0 */
/* Picks the kernel build for this CPU and turns (op, postscale) into a finish.
 *
 * The CPU is asked by CPUID directly: it costs nothing at this rate (once a batch) and
 * needs no compiler run-time object, which differs between gcc, clang and zig. Called
 * by coll.c. */
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
    return kernels_avx2[DT_F32].sum != NULL && cpu_has_avx2_f16c();
}

const struct kernel *kernel_for(enum dtype t, bool wide)
{
    if (!dtype_reducible(t))
        return NULL;
    return wide ? &kernels_avx2[t] : &kernels_base[t];
}

struct finish
finish_of(enum dtype t, enum reduce_op op, double postscale, uint32_t n_ranks)
{
    struct finish f = {postscale, 1};
    if (op != OP_AVERAGE)
        return f;
    if (t == DT_I32 || t == DT_I64)
        f.divisor = n_ranks;
    else
        f.factor = postscale / n_ranks;
    return f;
}
