/* SPDX-License-Identifier: Apache-2.0 */
/* Between floating-point tensors and what codecs work on: float32, or 16 bits on the
 * wire. Pure. Buffers hold n elements; they may be equal where both sides have the same
 * width, and must not overlap otherwise.
 *
 * Each result is the exact product with the scale (in float64) rounded once, to nearest
 * even; NaN stays NaN, what is too large becomes infinity. For 16 bits that bounds the
 * relative error of a normal result by 2^-11 (float16) and 2^-8 (bfloat16). */
#ifndef RUNTIME_CORE_COMPRESS_CAST_H
#define RUNTIME_CORE_COMPRESS_CAST_H

#include "runtime/core/compress/kernels.h"
#include "runtime/core/types.h"

/* f16, bf16, f32, f64: what the other functions take. */
bool cast_is_float(enum dtype t);
/* Element i of a tensor of type t. */
const void *cast_at(const void *p, enum dtype t, uint64_t i);
void *cast_at_out(void *p, enum dtype t, uint64_t i);

/* dst[i] = scale * src[i] */
void cast_load(const struct codec_kernels *k,
               float *dst,
               const void *src,
               enum dtype t,
               uint64_t n,
               double scale);
/* dst[i] += scale * src[i], the product rounded to float32 first */
void cast_add(const struct codec_kernels *k,
              float *dst,
              const void *src,
              enum dtype t,
              uint64_t n,
              double scale);
/* dst[i] = scale * src[i] */
void cast_store(const struct codec_kernels *k,
                void *dst,
                enum dtype t,
                const float *src,
                uint64_t n,
                double scale);

/* f32 or f64 -> f16 or bf16, times scale. */
void cast_narrow(const struct codec_kernels *k,
                 uint16_t *dst,
                 enum dtype to,
                 const void *src,
                 enum dtype from,
                 uint64_t n,
                 double scale);
/* f16 or bf16 -> f32 or f64. */
void cast_widen(const struct codec_kernels *k,
                void *dst,
                enum dtype to,
                const uint16_t *src,
                enum dtype from,
                uint64_t n);

#endif
