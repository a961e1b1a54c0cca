/* SPDX-License-Identifier: Apache-2.0 */
/* The loops for any CPU the build targets (SSE2 on x86-64), and the choice between the
 * two builds. See kernels.h. Pure. */
#include "runtime/core/compress/kernels.h"

#include "runtime/core/half.h"

static void widen_f16(float *restrict d, const uint16_t *restrict s, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        d[i] = f32_of_f16(s[i]);
}

static void narrow_f16(uint16_t *restrict d, const float *restrict s, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        d[i] = f16_of_f32(s[i]);
}

#define KERNELS codec_kernels_base
#include "runtime/core/compress/kernels.inc.h"

const struct codec_kernels *codec_kernels_of(bool is_wide)
{
    return is_wide && codec_kernels_avx2.dot4 ? &codec_kernels_avx2
                                              : &codec_kernels_base;
}
