/* SPDX-License-Identifier: Apache-2.0 */
/* The loops for CPUs with AVX2 and F16C. module.mk compiles this file with -mavx2
 * -mf16c; where the compiler does not (another machine) the table is empty. See
 * kernels.h. Pure. */
#include "runtime/core/compress/kernels.h"

#if defined(__AVX2__) && defined(__F16C__)

#include <immintrin.h>

#include "runtime/core/half.h"

static void widen_f16(float *restrict d, const uint16_t *restrict s, uint64_t n)
{
    uint64_t i = 0;

    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(d + i,
                         _mm256_cvtph_ps(_mm_loadu_si128((const void *)(s + i))));
    for (; i < n; i++)
        d[i] = f32_of_f16(s[i]);
}

static void narrow_f16(uint16_t *restrict d, const float *restrict s, uint64_t n)
{
    uint64_t i = 0;

    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((void *)(d + i), _mm256_cvtps_ph(_mm256_loadu_ps(s + i),
                                                          _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; i++)
        d[i] = f16_of_f32(s[i]);
}

#define KERNELS codec_kernels_avx2
#include "runtime/core/compress/kernels.inc.h"

#else

const struct codec_kernels codec_kernels_avx2 = {0};

#endif
