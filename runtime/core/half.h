/* SPDX-License-Identifier: Apache-2.0 */
/* float16 and bfloat16 <-> float32, rounded to nearest even, one element at a time and
 * without a branch, so that loops vectorise. NaN stays NaN (quiet, upper payload kept);
 * values out of range become infinity; subnormals are exact, independent of the
 * thread's FTZ and DAZ bits. Pure. */
#ifndef RUNTIME_CORE_HALF_H
#define RUNTIME_CORE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t f32_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof(u));
    return u;
}

static inline float f32_of_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof(f));
    return f;
}

static inline float f32_of_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t em = (uint32_t)(h & 0x7fff)
                  << 13;               /* exponent and mantissa in f32's place */
    uint32_t norm = em + (112u << 23); /* bias 127 - 15 */
    uint32_t spec = em + (224u << 23); /* infinity and NaN */
    uint32_t sub = f32_bits((float)(int32_t)(h & 0x3ff) * 0x1p-24f);
    uint32_t r = em < (1u << 23) ? sub : em >= (31u << 23) ? spec : norm;
    return f32_of_bits(sign | r);
}

static inline uint16_t f16_of_f32(float f)
{
    uint32_t x = f32_bits(f);
    uint32_t sign = (x >> 16) & 0x8000;
    uint32_t a = x & 0x7fffffff;
    uint32_t norm = (a + 0xfff + ((a >> 13) & 1) - (112u << 23)) >> 13;
    /* below 2^-14: adding 0.5 puts the last bit at 2^-24 and lets the FPU round */
    uint32_t sub = f32_bits(f32_of_bits(a) + 0.5f) - 0x3f000000u;
    uint32_t nan = 0x7e00 | ((a >> 13) & 0x3ff);
    uint32_t r = a < 0x38800000u ? sub : a >= 0x47800000u ? 0x7c00 : norm;
    r = a > 0x7f800000u ? nan : r;
    return (uint16_t)(sign | r);
}

static inline float f32_of_bf16(uint16_t h)
{
    return f32_of_bits((uint32_t)h << 16);
}

static inline uint16_t bf16_of_f32(float f)
{
    uint32_t x = f32_bits(f);
    uint32_t rnd = (x + 0x7fff + ((x >> 16) & 1)) >> 16;
    uint32_t nan = (x >> 16) | 0x40;
    return (uint16_t)((x & 0x7fffffff) > 0x7f800000u ? nan : rnd);
}

#endif
