/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for CPUs with AVX2 and F16C. module.mk compiles this file with -mavx2
 * -mf16c; where it does not (another machine) the table is empty. Only reduce.c may use
 * it, after checking the CPU. Without FMA, so that both builds give the same bits.
 * Pure. */
#include "runtime/backend/cpu/reduce.h"

#if defined(__AVX2__) && defined(__F16C__)

#include <immintrin.h>

#include "runtime/backend/cpu/half.h"

static void widen_f16(float *restrict d, const uint16_t *restrict s, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(d + i,
                         _mm256_cvtph_ps(_mm_loadu_si128((const void *)(s + i))));
    for (; i < n; i++)
        d[i] = f32_of_f16(s[i]);
}

static void narrow_f16(uint16_t *restrict d, const float *restrict s, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((void *)(d + i), _mm256_cvtps_ph(_mm256_loadu_ps(s + i),
                                                          _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; i++)
        d[i] = f16_of_f32(s[i]);
}

#define TABLE kernels_avx2
#include "runtime/backend/cpu/kernels.inc.h"

#else

const struct reduce_kernel kernels_avx2[FOLD_COUNT][DT_COUNT] = {{{0}}};

#endif
