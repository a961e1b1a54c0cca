/* SPDX-License-Identifier: Apache-2.0 */
/* The innermost loops, in two builds of one source (kernels.inc.h): for any CPU of the
 * architecture, and for those with AVX2 and F16C. Both give the same bits (except in a
 * NaN). Pure: the caller checks the CPU. */
#ifndef RUNTIME_CORE_COMPRESS_KERNELS_H
#define RUNTIME_CORE_COMPRESS_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

struct codec_kernels {
    void (*widen_f16)(float *d, const uint16_t *s, uint64_t n);
    void (*narrow_f16)(uint16_t *d, const float *s, uint64_t n);
    void (*widen_bf16)(float *d, const uint16_t *s, uint64_t n);
    void (*narrow_bf16)(uint16_t *d, const float *s, uint64_t n);
    /* One block of int8.h: fills q, returns the scale. residual (NULL: none) is added
     * to x and then holds what q lacks. x is not residual. */
    float (*int8_code)(int8_t *q, const float *x, float *residual, uint32_t n);
    /* acc += q * s. False: a q is -128. */
    bool (*int8_add)(float *acc, const int8_t *q, uint32_t n, float s);
    /* Writes indexes and values of the elements whose magnitude's bits are at least
     * `limit`, in order; returns how many there are, or more than max when they do not
     * fit. n is below 2^32. */
    uint64_t (*collect)(uint32_t *ret_index,
                        float *ret_value,
                        uint64_t max,
                        const float *w,
                        uint64_t n,
                        uint32_t limit);
    /* ret[j] = row . q[j], j from 0 to 3 */
    void (*dot4)(float ret[4], const float *row, const float *const q[4], uint64_t n);
    float (*dot1)(const float *row, const float *q, uint64_t n);
    /* dst += f[0] * m[0] + ... + f[3] * m[3] */
    void (*add4)(float *dst, const float *const m[4], const float f[4], uint64_t n);
    void (*add1)(float *dst, const float *m, float f, uint64_t n);
};

/* is_wide: the CPU has AVX2 and F16C; where there is no such build it does not matter.
 */
const struct codec_kernels *codec_kernels_of(bool is_wide);

extern const struct codec_kernels codec_kernels_base;
extern const struct codec_kernels
    codec_kernels_avx2; /* all NULL if this build has none */

#endif
