/* SPDX-License-Identifier: Apache-2.0 */
/* Shared code of the tests of compression's kernels. Include after cmocka.h. */
#ifndef TESTS_UNIT_CODEC_KERNELS_H
#define TESTS_UNIT_CODEC_KERNELS_H

#include <math.h>
#include <stdint.h>

#include "runtime/core/compress/kernels.h"
#include "tests/unit/seeded.h"

static inline bool cpu_is_wide(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
#else
    return false;
#endif
}

/* Each test runs with both builds of the loops, where this CPU can: main says
 * skip_wide_elsewhere() first. */
static inline const struct codec_kernels *kernels_of(void **state)
{
    return *state;
}

static inline void skip_wide_elsewhere(void)
{
    if (!cpu_is_wide())
        cmocka_set_skip_filter("*wide");
}

/* Spread over many binary orders, both signs. */
static inline float any_float(struct seeded *r, int low_exp, int high_exp)
{
    int e = low_exp + (int)seeded_below(r, (uint32_t)(high_exp - low_exp));
    float m = 1 + (float)(seeded_next(r) >> 41) * 0x1p-23f;

    return ldexpf(seeded_next(r) & 1 ? m : -m, e);
}

/* One test, both builds. */
#define BOTH(test)                                                                     \
    cmocka_unit_test_prestate(test, (void *)(uintptr_t)&codec_kernels_base),           \
    {                                                                                  \
        .name = #test " wide", .test_func = test,                                      \
        .initial_state = (void *)(uintptr_t)&codec_kernels_avx2                        \
    }

#endif
