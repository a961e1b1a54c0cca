/* SPDX-License-Identifier: Apache-2.0 */
/* Low-rank approximation by one subspace iteration a step. Pure.
 *
 * M is rows x cols, row by row. P and Q hold their `rank` vectors one after the other:
 * P rank x rows, Q rank x cols (the transposes of the paper's). All float32; sums run
 * in a fixed order, so equal input gives equal bits. */
#ifndef RUNTIME_CORE_COMPRESS_POWERSGD_H
#define RUNTIME_CORE_COMPRESS_POWERSGD_H

#include "runtime/core/compress/kernels.h"
#include "runtime/core/types.h"

#define POWERSGD_RANK_MAX 64

struct powersgd_shape {
    const struct codec_kernels *kernels;
    uint64_t rows, cols;
    uint32_t rank;
};

/* Fills vector j of rank with random numbers in [-1, 1) that are a function of seed, j
 * and the place alone. */
void powersgd_draw(float *v, uint64_t n, uint32_t j, uint64_t seed);
/* Vectors that are zero or not finite are replaced by random ones; then all are made
 * orthonormal. */
void powersgd_refresh(float *q, uint64_t n, uint32_t rank, uint64_t seed);
/* Makes n-vectors orthonormal, in order; one that lies in the span of those before it
 * (to float32's accuracy) becomes zero. False: not all were finite, v is unchanged from
 * there on. */
bool powersgd_orthonormal(float *v, uint64_t n, uint32_t rank);

/* P = M Q */
void powersgd_right(float *p,
                    const float *m,
                    const float *q,
                    const struct powersgd_shape *s);
/* Q = M^T P */
void powersgd_left(float *q,
                   const float *m,
                   const float *p,
                   const struct powersgd_shape *s);
/* out = factor * P Q^T */
void powersgd_out(void *out,
                  enum dtype t,
                  double factor,
                  const float *p,
                  const float *q,
                  const struct powersgd_shape *s);
/* M -= P Q^T; what is not finite then becomes 0. */
void powersgd_subtract(float *m,
                       const float *p,
                       const float *q,
                       const struct powersgd_shape *s);

#endif
