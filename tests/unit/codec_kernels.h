/* SPDX-License-Identifier: Apache-2.0 */
/* Shared code of the tests of compression's kernels. */
#ifndef TESTS_UNIT_CODEC_KERNELS_H
#define TESTS_UNIT_CODEC_KERNELS_H

#include <math.h>

#include "runtime/core/compress/kernels.h"
#include "tests/unit/seeded.h"
#include "tests/unit/unit.h"

static inline bool cpu_is_wide(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
#else
    return false;
#endif
}

/* Spread over many binary orders, both signs. */
static inline float any_float(struct seeded *r, int low_exp, int high_exp)
{
    int e = low_exp + (int)seeded_below(r, (uint32_t)(high_exp - low_exp));
    float m = 1 + (float)(seeded_next(r) >> 41) * 0x1p-23f;

    return ldexpf(seeded_next(r) & 1 ? m : -m, e);
}

/* A test that runs with both builds of the loops, where this CPU can. */
#define KERNEL_TEST(f)                                                                 \
    static void f(const struct codec_kernels *kernels);                                \
    UNIT_TEST(f##_base)                                                                \
    {                                                                                  \
        f(&codec_kernels_base);                                                        \
    }                                                                                  \
    UNIT_TEST(f##_wide)                                                                \
    {                                                                                  \
        if (!cpu_is_wide())                                                            \
            skip();                                                                    \
        f(&codec_kernels_avx2);                                                        \
    }                                                                                  \
    static void f(const struct codec_kernels *kernels)

#endif
