/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of Adasum on one pair of vectors: a' = ca * a + cb * b. Pure. */
#ifndef RUNTIME_BACKEND_CPU_ADASUM_MATH_H
#define RUNTIME_BACKEND_CPU_ADASUM_MATH_H

#include "runtime/core/types.h"

struct adasum_dots {
    double ab, aa, bb; /* sums of a[i] * b[i], a[i] * a[i], b[i] * b[i] */
};

/* Over n elements of a floating point type, in double, in an order that depends on n
 * only. */
struct adasum_dots adasum_dots(enum dtype t, const void *a, const void *b, size_t n);

/* The weights of the two sides: 1 - ab / (2 aa) and 1 - ab / (2 bb); 1 for a vector of
 * length 0, which has no direction. */
void adasum_weights(const struct adasum_dots *d, double *ret_a, double *ret_b);

/* dst = wa * a + wb * b, computed in double (16-bit floats: then in float32) and
 * rounded once. dst may equal a or b. */
void adasum_combine(enum dtype t,
                    void *dst,
                    const void *a,
                    const void *b,
                    double wa,
                    double wb,
                    size_t n);

#endif
