/* SPDX-License-Identifier: Apache-2.0 */
/* The one source of the kernels, included by kernels_base.c and kernels_avx2.c, which
 * define
 *
 *   TABLE        name of the table
 *   widen_f16    (float *, const uint16_t *, size_t)
 *   narrow_f16   (uint16_t *, const float *, size_t)
 *
 * Design: a block of BLOCK elements is folded, finished and stored to a second place
 * while it is in the L1 cache. One or two sources are folded directly into the
 * destination, which may equal either of them; more into a local array, because the
 * destination may be the third.
 *
 * An operation is a macro F(x, y) over the type it is computed in. Integers are added
 * and multiplied unsigned, because they wrap; compared and finished in their own type.
 * Minimum and maximum return a NaN whichever operand it is: as the first operand it is
 * selected explicitly, as the second because the comparison with it is false. */

#include <string.h>

#include "runtime/backend/cpu/half.h"
#include "runtime/backend/cpu/reduce.h"

enum { BLOCK = 1024 };

/* Before a loop whose destination may equal a source but overlaps none otherwise: no
 * element depends on another one, so it may be vectorised. It need not be, which clang
 * would warn about in sanitizer builds. */
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed"
#define EACH_ALONE _Pragma("clang loop vectorize(assume_safety)")
#else
#define EACH_ALONE _Pragma("GCC ivdep")
#endif

#define F_ADD(x, y)   ((x) + (y))
#define F_MUL(x, y)   ((x) * (y))
#define F_MUL32(x, y) ((uint32_t)(x) * (uint32_t)(y)) /* int would overflow */
#define F_MIN(x, y)   ((x) < (y) ? (x) : (y))
#define F_MAX(x, y)   ((x) > (y) ? (x) : (y))
#define F_FMIN(x, y)  ((((x) < (y)) | ((x) != (x))) ? (x) : (y))
#define F_FMAX(x, y)  ((((x) > (y)) | ((x) != (x))) ? (x) : (y))
#define F_OR(x, y)    ((x) | (y)) /* any value but 0 is true */
#define F_AND(x, y)   (((x) != 0) & ((y) != 0))

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
/* --- finishing a complete block --- */

#define DEFINE_FLOAT_FINISH(name, T)                                                   \
    static void finish_##name(T *acc, size_t n, const struct finish *f)                \
    {                                                                                  \
        T k = (T)f->factor;                                                            \
        if (f->factor != 1.0)                                                          \
            for (size_t i = 0; i < n; i++)                                             \
                acc[i] *= k;                                                           \
    }

/* MIN and MAX: the type's limits; ABOVE and BELOW: the nearest doubles outside them
 * whose truncation is not the type's. */
#define DEFINE_INT_FINISH(name, T, MIN, MAX, BELOW, ABOVE)                             \
    static void finish_##name(T *acc, size_t n, const struct finish *f)                \
    {                                                                                  \
        if (f->divisor != 1)                                                           \
            for (size_t i = 0; i < n; i++)                                             \
                acc[i] = (T)((int64_t)acc[i] / (int64_t)f->divisor);                   \
        if (f->factor != 1.0)                                                          \
            for (size_t i = 0; i < n; i++) {                                           \
                double x = (double)acc[i] * f->factor;                                 \
                acc[i] = x >= (ABOVE)   ? (MAX)                                        \
                         : x <= (BELOW) ? (MIN)                                        \
                         : x != x       ? 0                                            \
                                        : (T)x;                                              \
            }                                                                          \
    }

static void finish_bool(uint8_t *acc, size_t n, const struct finish *f)
{
    uint8_t mask = f->factor != 0.0;
    for (size_t i = 0; i < n; i++)
        acc[i] = (acc[i] != 0) & mask;
}

DEFINE_FLOAT_FINISH(f32, float)
DEFINE_FLOAT_FINISH(f64, double)
DEFINE_INT_FINISH(u8, uint8_t, 0, UINT8_MAX, -1.0, 0x1p8)
DEFINE_INT_FINISH(i8, int8_t, INT8_MIN, INT8_MAX, -0x1p7 - 1, 0x1p7)
DEFINE_INT_FINISH(u16, uint16_t, 0, UINT16_MAX, -1.0, 0x1p16)
DEFINE_INT_FINISH(i16, int16_t, INT16_MIN, INT16_MAX, -0x1p15 - 1, 0x1p15)
DEFINE_INT_FINISH(i32, int32_t, INT32_MIN, INT32_MAX, -0x1p31 - 1, 0x1p31)
DEFINE_INT_FINISH(i64, int64_t, INT64_MIN, INT64_MAX, -0x1p63, 0x1p63)

/* --- folding n elements at offset off of all sources, T in memory --- */

#define DEFINE_FOLD(op, name, T, F, FINISH)                                            \
    static void op##_##name(void *dst, void *dst2, const void *const *src,             \
                            size_t n_src, size_t n, const struct finish *f)            \
    {                                                                                  \
        T local[BLOCK] __attribute__((aligned(64)));                                   \
        for (size_t off = 0; off < n; off += BLOCK) {                                  \
            size_t m = n - off < BLOCK ? n - off : BLOCK;                              \
            T *d = (T *)dst + off, *acc = n_src <= 2 ? d : local;                      \
            const T *a = (const T *)src[0] + off;                                      \
            if (n_src == 1) {                                                          \
                if (a != acc)                                                          \
                    memcpy(acc, a, m * sizeof(T));                                     \
            } else {                                                                   \
                const T *b = (const T *)src[1] + off;                                  \
                EACH_ALONE                                                             \
                for (size_t i = 0; i < m; i++)                                         \
                    acc[i] = (T)F(a[i], b[i]);                                         \
            }                                                                          \
            for (size_t k = 2; k < n_src; k++) {                                       \
                const T *restrict c = (const T *)src[k] + off;                         \
                for (size_t i = 0; i < m; i++)                                         \
                    local[i] = (T)F(local[i], c[i]);                                   \
            }                                                                          \
            FINISH;                                                                    \
            if (acc != d)                                                              \
                memcpy(d, acc, m * sizeof(T));                                         \
            if (dst2)                                                                  \
                memcpy((T *)dst2 + off, acc, m * sizeof(T));                           \
        }                                                                              \
    }

/* 16-bit floats: widen, fold in float32, narrow once. */
#define DEFINE_FOLD16(op, name, F)                                                     \
    static void op##_##name(void *dst, void *dst2, const void *const *src,             \
                            size_t n_src, size_t n, const struct finish *f)            \
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
                    acc[i] = F(acc[i], one[i]);                                        \
            }                                                                          \
            finish_f32(acc, m, f);                                                     \
            narrow_##name(res, acc, m);                                                \
            memcpy((uint16_t *)dst + off, res, m * sizeof(*res));                      \
            if (dst2)                                                                  \
                memcpy((uint16_t *)dst2 + off, res, m * sizeof(*res));                 \
        }                                                                              \
    }

#define DEFINE_FLOAT(name, T)                                                          \
    DEFINE_FOLD(sum, name, T, F_ADD, finish_##name(acc, m, f))                         \
    DEFINE_FOLD(product, name, T, F_MUL, finish_##name(acc, m, f))                     \
    DEFINE_FOLD(min, name, T, F_FMIN, finish_##name(acc, m, f))                        \
    DEFINE_FOLD(max, name, T, F_FMAX, finish_##name(acc, m, f))
DEFINE_FLOAT(f32, float)
DEFINE_FLOAT(f64, double)

#define DEFINE_FLOAT16(name)                                                           \
    DEFINE_FOLD16(sum, name, F_ADD)                                                    \
    DEFINE_FOLD16(product, name, F_MUL)                                                \
    DEFINE_FOLD16(min, name, F_FMIN)                                                   \
    DEFINE_FOLD16(max, name, F_FMAX)
DEFINE_FLOAT16(f16)
DEFINE_FLOAT16(bf16)

/* U: the unsigned type of T's size. */
#define DEFINE_INT(name, T, U, MUL)                                                    \
    DEFINE_FOLD(sum, name, U, F_ADD, finish_##name((T *)acc, m, f))                    \
    DEFINE_FOLD(product, name, U, MUL, finish_##name((T *)acc, m, f))                  \
    DEFINE_FOLD(min, name, T, F_MIN, finish_##name(acc, m, f))                         \
    DEFINE_FOLD(max, name, T, F_MAX, finish_##name(acc, m, f))
DEFINE_INT(u8, uint8_t, uint8_t, F_MUL32)
DEFINE_INT(i8, int8_t, uint8_t, F_MUL32)
DEFINE_INT(u16, uint16_t, uint16_t, F_MUL32)
DEFINE_INT(i16, int16_t, uint16_t, F_MUL32)
DEFINE_INT(i32, int32_t, uint32_t, F_MUL)
DEFINE_INT(i64, int64_t, uint64_t, F_MUL)

DEFINE_FOLD(or, bool, uint8_t, F_OR, finish_bool(acc, m, f))
DEFINE_FOLD(and, bool, uint8_t, F_AND, finish_bool(acc, m, f))

/* NOLINTEND(bugprone-macro-parentheses) */
#define ROW(op, of_bool)                                                               \
    {                                                                                  \
        [DT_U8] = {1, op##_u8}, [DT_I8] = {1, op##_i8}, [DT_U16] = {2, op##_u16},      \
        [DT_I16] = {2, op##_i16}, [DT_I32] = {4, op##_i32}, [DT_I64] = {8, op##_i64},  \
        [DT_F16] = {2, op##_f16}, [DT_F32] = {4, op##_f32}, [DT_F64] = {8, op##_f64},  \
        [DT_BOOL] = {1, of_bool##_bool}, [DT_BF16] = {2, op##_bf16},                   \
    }

const struct reduce_kernel TABLE[FOLD_COUNT][DT_COUNT] = {
    [FOLD_SUM] = ROW(sum, or),
    [FOLD_MIN] = ROW(min, and),
    [FOLD_MAX] = ROW(max, or),
    [FOLD_PRODUCT] = ROW(product, and),
};
