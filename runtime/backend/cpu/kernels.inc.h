/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels' one source, included by kernels_base.c and kernels_avx2.c, which define
 *     TABLE             name of the table
 *     widen_f16(float *, const uint16_t *, size_t), narrow_f16(uint16_t *, const float
 * *, size_t)
 *
 * Design: a block of BLOCK elements is summed in a local array that stays in the L1
 * cache, then finished and stored to one or two places. The local array is what makes
 * every loop vectorise: it aliases nothing, so destinations may equal sources. */

#include <string.h>

#include "runtime/backend/cpu/half.h"
#include "runtime/backend/cpu/reduce.h"

enum { BLOCK = 1024 };

static void widen_bf16(float *restrict d, const uint16_t *restrict s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        d[i] = f32_of_bf16(s[i]);
}

static void narrow_bf16(uint16_t *restrict d, const float *restrict s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        d[i] = bf16_of_f32(s[i]);
}

/* NOLINTBEGIN(bugprone-macro-parentheses): T is a type. */
/* T: element in memory. Sums n elements at offset off of all sources into acc. */
#define DEFINE_GATHER(name, T)                                                         \
    static void name##_gather(T *restrict acc, const void *const *src, size_t n_src,   \
                              size_t off, size_t n)                                    \
    {                                                                                  \
        const T *restrict a = (const T *)src[0] + off;                                 \
        if (n_src == 1) {                                                              \
            memcpy(acc, a, n * sizeof(T));                                             \
            return;                                                                    \
        }                                                                              \
        const T *restrict b = (const T *)src[1] + off;                                 \
        for (size_t i = 0; i < n; i++)                                                 \
            acc[i] = a[i] + b[i];                                                      \
        for (size_t k = 2; k < n_src; k++) {                                           \
            const T *restrict c = (const T *)src[k] + off;                             \
            for (size_t i = 0; i < n; i++)                                             \
                acc[i] += c[i];                                                        \
        }                                                                              \
    }

/* The loop over blocks; FINISH is a statement over acc, m and f. */
#define DEFINE_SUM(name, T, FINISH)                                                    \
    static void name##_sum(void *dst, void *dst2, const void *const *src,              \
                           size_t n_src, size_t n, const struct finish *f)             \
    {                                                                                  \
        T acc[BLOCK] __attribute__((aligned(64)));                                     \
        for (size_t off = 0; off < n; off += BLOCK) {                                  \
            size_t m = n - off < BLOCK ? n - off : BLOCK;                              \
            name##_gather(acc, src, n_src, off, m);                                    \
            FINISH;                                                                    \
            memcpy((T *)dst + off, acc, m * sizeof(T));                                \
            if (dst2 != NULL)                                                          \
                memcpy((T *)dst2 + off, acc, m * sizeof(T));                           \
        }                                                                              \
    }

/* NOLINTEND(bugprone-macro-parentheses) */
static void f32_times(float *acc, size_t n, double factor)
{
    float k = (float)factor;
    if (factor != 1.0)
        for (size_t i = 0; i < n; i++)
            acc[i] *= k;
}

static void f64_times(double *acc, size_t n, double factor)
{
    if (factor != 1.0)
        for (size_t i = 0; i < n; i++)
            acc[i] *= factor;
}

/* Sums are unsigned (they wrap); what follows is signed. */
static void i32_finish(uint32_t *acc, size_t n, const struct finish *f)
{
    if (f->divisor != 1)
        for (size_t i = 0; i < n; i++)
            acc[i] = (uint32_t)((int64_t)(int32_t)acc[i] / (int64_t)f->divisor);
    if (f->factor != 1.0)
        for (size_t i = 0; i < n; i++) {
            double x = (double)(int32_t)acc[i] * f->factor;
            acc[i] = (uint32_t)(x >= 0x1p31    ? INT32_MAX
                                : x <= -0x1p31 ? INT32_MIN
                                : x != x       ? 0
                                               : (int32_t)x);
        }
}

static void i64_finish(uint64_t *acc, size_t n, const struct finish *f)
{
    if (f->divisor != 1)
        for (size_t i = 0; i < n; i++)
            acc[i] = (uint64_t)((int64_t)acc[i] / (int64_t)f->divisor);
    if (f->factor != 1.0)
        for (size_t i = 0; i < n; i++) {
            double x = (double)(int64_t)acc[i] * f->factor;
            acc[i] = (uint64_t)(x >= 0x1p63    ? INT64_MAX
                                : x <= -0x1p63 ? INT64_MIN
                                : x != x       ? 0
                                               : (int64_t)x);
        }
}

DEFINE_GATHER(f32, float)
DEFINE_SUM(f32, float, f32_times(acc, m, f->factor))
DEFINE_GATHER(f64, double)
DEFINE_SUM(f64, double, f64_times(acc, m, f->factor))
DEFINE_GATHER(i32, uint32_t)
DEFINE_SUM(i32, uint32_t, i32_finish(acc, m, f))
DEFINE_GATHER(i64, uint64_t)
DEFINE_SUM(i64, uint64_t, i64_finish(acc, m, f))

/* 16-bit floats: widen, sum in float32, narrow once. */
#define DEFINE_SUM16(name)                                                             \
    static void name##_sum(void *dst, void *dst2, const void *const *src,              \
                           size_t n_src, size_t n, const struct finish *f)             \
    {                                                                                  \
        float acc[BLOCK] __attribute__((aligned(64)));                                 \
        float one[BLOCK] __attribute__((aligned(64)));                                 \
        uint16_t res[BLOCK] __attribute__((aligned(64)));                              \
        for (size_t off = 0; off < n; off += BLOCK) {                                  \
            size_t m = n - off < BLOCK ? n - off : BLOCK;                              \
            widen_##name(acc, (const uint16_t *)src[0] + off, m);                      \
            for (size_t k = 1; k < n_src; k++) {                                       \
                widen_##name(one, (const uint16_t *)src[k] + off, m);                  \
                for (size_t i = 0; i < m; i++)                                         \
                    acc[i] += one[i];                                                  \
            }                                                                          \
            f32_times(acc, m, f->factor);                                              \
            narrow_##name(res, acc, m);                                                \
            memcpy((uint16_t *)dst + off, res, m * sizeof *res);                       \
            if (dst2 != NULL)                                                          \
                memcpy((uint16_t *)dst2 + off, res, m * sizeof *res);                  \
        }                                                                              \
    }
DEFINE_SUM16(f16)
DEFINE_SUM16(bf16)

const struct kernel TABLE[DT_COUNT] = {
    [DT_I32] = {4, i32_sum}, [DT_I64] = {8, i64_sum}, [DT_F16] = {2, f16_sum},
    [DT_F32] = {4, f32_sum}, [DT_F64] = {8, f64_sum}, [DT_BF16] = {2, bf16_sum},
};
