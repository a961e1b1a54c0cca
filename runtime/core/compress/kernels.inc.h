/* SPDX-License-Identifier: Apache-2.0 */
/* The body of kernels_base.c and kernels_avx2.c, which define KERNELS, the table's
 * name, and widen_f16 and narrow_f16 before. Plain loops that compilers vectorise;
 * where a sum runs over lanes, their number is fixed here and not by the machine, so
 * that both builds add in the same order. Compiled without contraction to fused
 * multiply-add. */
#include <math.h>
#include <string.h>

#include "runtime/core/compress/int8.h"
#include "runtime/core/compress/kernels.h"
#include "runtime/core/half.h"

enum { LANES = 8, COLLECT_GROUP = 2 * LANES };
#define ABS_BITS 0x7fffffff
#define INF_BITS 0x7f800000 /* magnitudes from here on are not finite */
#define ROUNDER  0x1.8p23f  /* x + ROUNDER has x's integer in its low bits */

static void widen_bf16(float *restrict d, const uint16_t *restrict s, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        d[i] = f32_of_bf16(s[i]);
}

static void narrow_bf16(uint16_t *restrict d, const float *restrict s, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        d[i] = bf16_of_f32(s[i]);
}

/* --- int8 --- */

static float scale_of(int32_t top)
{
    float s;

    if (top >= INF_BITS)
        return NAN;
    s = f32_of_bits((uint32_t)top) / 127;
    if (s < INT8_SCALE_MIN)
        return 0;
    return s > INT8_SCALE_MAX ? INT8_SCALE_MAX : s;
}

static inline int32_t magnitude_bits(float f)
{
    return (int32_t)(f32_bits(f) & ABS_BITS);
}

static inline int8_t float_round(float f)
{
    return (int8_t)(uint8_t)f32_bits(f + ROUNDER);
}

static float code_plain(int8_t *restrict q, const float *restrict x, uint32_t n)
{
    int32_t top = 0; /* magnitudes grow with their bits */
    float s, inverse;

    for (uint32_t i = 0; i < n; i++) {
        int32_t a = magnitude_bits(x[i]);

        top = a > top ? a : top;
    }
    s = scale_of(top);
    inverse = 1 / s;
    if (s > 0)
        for (uint32_t i = 0; i < n; i++)
            q[i] = float_round(x[i] * inverse);
    else
        memset(q, 0, n); /* zeros, or NaN whatever the bytes */
    return s;
}

static float
code_fed(int8_t *restrict q, const float *restrict x, float *restrict r, uint32_t n)
{
    int32_t top = 0;
    float s, inverse;

    for (uint32_t i = 0; i < n; i++) {
        float w = r[i] + x[i];
        int32_t a = magnitude_bits(w);

        r[i] = w;
        top = a > top ? a : top;
    }
    s = scale_of(top);
    inverse = 1 / s;
    if (s > 0) {
        for (uint32_t i = 0; i < n; i++) {
            int8_t v = float_round(r[i] * inverse);

            q[i] = v;
            r[i] -= (float)v * s;
        }
        return s;
    }
    memset(q, 0, n);
    if (s != s)
        memset(r, 0, n * sizeof(*r));
    return s;
}

static float int8_code(int8_t *q, const float *x, float *residual, uint32_t n)
{
    return residual ? code_fed(q, x, residual, n) : code_plain(q, x, n);
}

static bool int8_add(float *restrict acc, const int8_t *restrict q, uint32_t n, float s)
{
    int8_t low = 0;

    for (uint32_t i = 0; i < n; i++)
        low = q[i] < low ? q[i] : low;
    for (uint32_t i = 0; i < n; i++)
        acc[i] += (float)q[i] * s;
    return low >= -127;
}

/* --- topk --- */

typedef int32_t int_lanes __attribute__((vector_size(LANES * sizeof(int32_t))));

/* Does one of COLLECT_GROUP elements reach the limit? Written with vectors: compilers
 * make scalar code of the loop. */
static inline bool group_reaches(const float *w, int32_t limit)
{
    int_lanes a, b, hit;
    uint64_t bits[4];

    memcpy(&a, w, sizeof(a));
    memcpy(&b, w + LANES, sizeof(b));
    hit = ((a & ABS_BITS) >= limit) | ((b & ABS_BITS) >= limit);
    memcpy(bits, &hit, sizeof(bits));
    return (bits[0] | bits[1] | bits[2] | bits[3]) != 0;
}

/* Most groups hold none and are passed over by one test. */
static uint64_t index_collect(uint32_t *restrict ret_index,
                              float *restrict ret_value,
                              uint64_t max,
                              const float *w,
                              uint64_t n,
                              uint32_t limit)
{
    uint64_t found = 0, i = 0;

    for (; i + COLLECT_GROUP <= n; i += COLLECT_GROUP) {
        if (!group_reaches(w + i, (int32_t)limit))
            continue;
        if (found + COLLECT_GROUP > max)
            break;
        for (uint32_t k = 0; k < COLLECT_GROUP; k++) {
            ret_index[found] = (uint32_t)(i + k);
            ret_value[found] = w[i + k];
            found += magnitude_bits(w[i + k]) >= (int32_t)limit;
        }
    }
    for (; i < n && found <= max; i++)
        if (magnitude_bits(w[i]) >= (int32_t)limit) {
            if (found < max) {
                ret_index[found] = (uint32_t)i;
                ret_value[found] = w[i];
            }
            found++;
        }
    return found;
}

/* --- powersgd --- */

typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));

#define LANES_AT(v, p) memcpy(&(v), (p), sizeof(lanes))

static float lanes_sum(const lanes *v)
{
    float f[LANES];

    memcpy(f, v, sizeof(f));
    return ((f[0] + f[4]) + (f[2] + f[6])) + ((f[1] + f[5]) + (f[3] + f[7]));
}

static void
row_dot4(float ret[4], const float *row, const float *const q[4], uint64_t n)
{
    const float *q0 = q[0], *q1 = q[1], *q2 = q[2], *q3 = q[3];
    lanes s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0}, x, y;
    uint64_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        LANES_AT(x, row + i);
        LANES_AT(y, q0 + i);
        s0 += x * y;
        LANES_AT(y, q1 + i);
        s1 += x * y;
        LANES_AT(y, q2 + i);
        s2 += x * y;
        LANES_AT(y, q3 + i);
        s3 += x * y;
    }
    ret[0] = lanes_sum(&s0);
    ret[1] = lanes_sum(&s1);
    ret[2] = lanes_sum(&s2);
    ret[3] = lanes_sum(&s3);
    for (; i < n; i++) {
        ret[0] += row[i] * q0[i];
        ret[1] += row[i] * q1[i];
        ret[2] += row[i] * q2[i];
        ret[3] += row[i] * q3[i];
    }
}

static float row_dot1(const float *row, const float *q, uint64_t n)
{
    lanes sum = {0}, x, y;
    uint64_t i = 0;
    float s;

    for (; i + LANES <= n; i += LANES) {
        LANES_AT(x, row + i);
        LANES_AT(y, q + i);
        sum += x * y;
    }
    s = lanes_sum(&sum);
    for (; i < n; i++)
        s += row[i] * q[i];
    return s;
}

static void
row_add4(float *restrict dst, const float *const m[4], const float f[4], uint64_t n)
{
    const float *restrict m0 = m[0], *restrict m1 = m[1];
    const float *restrict m2 = m[2], *restrict m3 = m[3];
    float f0 = f[0], f1 = f[1], f2 = f[2], f3 = f[3];

    for (uint64_t i = 0; i < n; i++)
        dst[i] += (f0 * m0[i] + f1 * m1[i]) + (f2 * m2[i] + f3 * m3[i]);
}

static void row_add1(float *restrict dst, const float *restrict m, float f, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        dst[i] += f * m[i];
}

const struct codec_kernels KERNELS = {
    .widen_f16 = widen_f16,
    .narrow_f16 = narrow_f16,
    .widen_bf16 = widen_bf16,
    .narrow_bf16 = narrow_bf16,
    .int8_code = int8_code,
    .int8_add = int8_add,
    .collect = index_collect,
    .dot4 = row_dot4,
    .dot1 = row_dot1,
    .add4 = row_add4,
    .add1 = row_add1,
};
