/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions, one loop for each pair of types that occurs, so that each vectorises.
 *
 * Rounding once: float64 to 16 bits must not go through float32 rounded to nearest,
 * because the first rounding could create a tie for the second one. So the step in
 * between is rounded to odd: an inexact float32 gets an odd last bit, which the second
 * rounding can neither mistake for a tie nor for exact (Boldo and Melquiond, "Emulation
 * of FMA and correctly rounded sums", 2008). Products with a scale are rounded the same
 * way.
 *
 * Called by codec.c, int8.c and powersgd.c. */
#include "runtime/core/compress/cast.h"

#include "runtime/core/half.h"

enum { CHUNK = 1024 }; /* elements on the stack between two loops */

bool cast_is_float(enum dtype t)
{
    return t == DT_F16 || t == DT_BF16 || t == DT_F32 || t == DT_F64;
}

const void *cast_at(const void *p, enum dtype t, uint64_t i)
{
    return (const uint8_t *)p + i * dtype_size(t);
}

void *cast_at_out(void *p, enum dtype t, uint64_t i)
{
    return (uint8_t *)p + i * dtype_size(t);
}

void cast_load(const struct codec_kernels *k,
               float *dst,
               const void *src,
               enum dtype t,
               uint64_t n,
               double scale)
{
    const uint16_t *h = src;
    const double *d = src;
    const float *f = src;

    if (t == DT_F64)
        for (uint64_t i = 0; i < n; i++)
            dst[i] = (float)(d[i] * scale);
    else if (t == DT_F16 && scale == 1)
        k->widen_f16(dst, h, n);
    else if (t == DT_F16)
        for (uint64_t i = 0; i < n; i++)
            dst[i] = (float)((double)f32_of_f16(h[i]) * scale);
    else if (t == DT_BF16 && scale == 1)
        k->widen_bf16(dst, h, n);
    else if (t == DT_BF16)
        for (uint64_t i = 0; i < n; i++)
            dst[i] = (float)((double)f32_of_bf16(h[i]) * scale);
    else if (scale != 1)
        for (uint64_t i = 0; i < n; i++)
            dst[i] = (float)((double)f[i] * scale);
    else if (n > 0)
        memmove(dst, src, n * sizeof(*dst));
}

void cast_add(const struct codec_kernels *k,
              float *dst,
              const void *src,
              enum dtype t,
              uint64_t n,
              double scale)
{
    const float *f = src;
    float buf[CHUNK];

    if (t == DT_F32 && scale == 1) {
        for (uint64_t i = 0; i < n; i++)
            dst[i] += f[i];
        return;
    }
    for (uint64_t at = 0; at < n; at += CHUNK) {
        uint64_t len = n - at < CHUNK ? n - at : CHUNK;

        cast_load(k, buf, cast_at(src, t, at), t, len, scale);
        for (uint64_t i = 0; i < len; i++)
            dst[at + i] += buf[i];
    }
}

/* Rounded to odd: exact, or the neighbour with an odd last bit. */
static inline float f32_odd(double d)
{
    float f = (float)d;
    double back = (double)f, magnitude = d < 0 ? -d : d;
    uint32_t u = f32_bits(f);
    uint32_t is_even = ~u & 1;
    /* an even last bit: the odd float next to d is on the other side of d */
    uint32_t step = (back < 0 ? -back : back) > magnitude ? 0u - is_even : is_even;
    bool is_exact = back == d || d != d;

    return f32_of_bits(is_exact ? u : u + step);
}

static void store_half(const struct codec_kernels *k,
                       uint16_t *dst,
                       const float *src,
                       uint64_t n,
                       double scale)
{
    if (scale == 1)
        k->narrow_f16(dst, src, n);
    else
        for (uint64_t i = 0; i < n; i++)
            dst[i] = f16_of_f32(f32_odd((double)src[i] * scale));
}

static void store_bfloat(const struct codec_kernels *k,
                         uint16_t *dst,
                         const float *src,
                         uint64_t n,
                         double scale)
{
    if (scale == 1)
        k->narrow_bf16(dst, src, n);
    else
        for (uint64_t i = 0; i < n; i++)
            dst[i] = bf16_of_f32(f32_odd((double)src[i] * scale));
}

void cast_store(const struct codec_kernels *k,
                void *dst,
                enum dtype t,
                const float *src,
                uint64_t n,
                double scale)
{
    double *d = dst;
    float *f = dst;

    if (t == DT_F64)
        for (uint64_t i = 0; i < n; i++)
            d[i] = (double)src[i] * scale;
    else if (t == DT_F16)
        store_half(k, dst, src, n, scale);
    else if (t == DT_BF16)
        store_bfloat(k, dst, src, n, scale);
    else if (scale != 1)
        for (uint64_t i = 0; i < n; i++)
            f[i] = (float)((double)src[i] * scale);
    else if (n > 0)
        memmove(dst, src, n * sizeof(*src));
}

void cast_narrow(const struct codec_kernels *k,
                 uint16_t *dst,
                 enum dtype to,
                 const void *src,
                 enum dtype from,
                 uint64_t n,
                 double scale)
{
    const double *d = src;

    if (from == DT_F32)
        cast_store(k, dst, to, src, n, scale);
    else if (to == DT_F16)
        for (uint64_t i = 0; i < n; i++)
            dst[i] = f16_of_f32(f32_odd(d[i] * scale));
    else
        for (uint64_t i = 0; i < n; i++)
            dst[i] = bf16_of_f32(f32_odd(d[i] * scale));
}

void cast_widen(const struct codec_kernels *k,
                void *dst,
                enum dtype to,
                const uint16_t *src,
                enum dtype from,
                uint64_t n)
{
    double *d = dst;
    float *f = dst;

    if (to == DT_F32 && from == DT_F16)
        k->widen_f16(f, src, n);
    else if (to == DT_F32)
        k->widen_bf16(f, src, n);
    else if (from == DT_F16)
        for (uint64_t i = 0; i < n; i++)
            d[i] = (double)f32_of_f16(src[i]);
    else
        for (uint64_t i = 0; i < n; i++)
            d[i] = (double)f32_of_bf16(src[i]);
}
