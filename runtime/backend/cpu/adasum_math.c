/* SPDX-License-Identifier: Apache-2.0 */
/* Dot products and weighted sums of Adasum (Maleki et al., "Scaling Distributed
 * Training with Adaptive Summation").
 *
 * A dot product has LANES partial sums, element i in lane i % LANES, added pairwise at
 * the end: an order that the compiler can vectorise, the same on every machine. Called
 * by adasum.c. Pure. */
#include "runtime/backend/cpu/adasum_math.h"

#include <float.h>

#include "runtime/core/half.h"

enum { LANES = 8, BLOCK = 512 }; /* a block is a multiple of the lanes */

struct lanes {
    double ab[LANES], aa[LANES], bb[LANES];
};

/* Widens elements [off, off + n) to double. */
static void doubles_load(enum dtype t, double *d, const void *p, size_t off, size_t n)
{
    for (size_t i = 0; i < n; i++)
        d[i] = t == DT_F64    ? ((const double *)p)[off + i]
               : t == DT_F32  ? (double)((const float *)p)[off + i]
               : t == DT_BF16 ? (double)f32_of_bf16(((const uint16_t *)p)[off + i])
                              : (double)f32_of_f16(((const uint16_t *)p)[off + i]);
}

static void doubles_store(enum dtype t, void *p, const double *d, size_t off, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (t == DT_F64)
            ((double *)p)[off + i] = d[i];
        else if (t == DT_F32)
            ((float *)p)[off + i] = (float)d[i];
        else if (t == DT_BF16)
            ((uint16_t *)p)[off + i] = bf16_of_f32((float)d[i]);
        else
            ((uint16_t *)p)[off + i] = f16_of_f32((float)d[i]);
}

static void add_products(struct lanes *l,
                         const double *restrict a,
                         const double *restrict b,
                         size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t k = 0; k < LANES; k++) {
            l->ab[k] += a[i + k] * b[i + k];
            l->aa[k] += a[i + k] * a[i + k];
            l->bb[k] += b[i + k] * b[i + k];
        }
    for (size_t k = 0; i < n; i++, k++) {
        l->ab[k] += a[i] * b[i];
        l->aa[k] += a[i] * a[i];
        l->bb[k] += b[i] * b[i];
    }
}

static double add_up(double *x)
{
    for (size_t n = LANES / 2; n > 0; n /= 2)
        for (size_t k = 0; k < n; k++)
            x[k] += x[k + n];
    return x[0];
}

struct adasum_dots adasum_dots(enum dtype t, const void *a, const void *b, size_t n)
{
    struct lanes l = {{0}, {0}, {0}};
    double x[BLOCK], y[BLOCK];
    for (size_t off = 0; off < n; off += BLOCK) {
        size_t m = n - off < BLOCK ? n - off : BLOCK;
        doubles_load(t, x, a, off, m);
        doubles_load(t, y, b, off, m);
        add_products(&l, x, y, m);
    }
    return (struct adasum_dots){add_up(l.ab), add_up(l.aa), add_up(l.bb)};
}

void adasum_weights(const struct adasum_dots *d, double *ret_a, double *ret_b)
{
    *ret_a = d->aa >= DBL_MIN ? 1 - d->ab / d->aa / 2 : 1;
    *ret_b = d->bb >= DBL_MIN ? 1 - d->ab / d->bb / 2 : 1;
}

void adasum_combine(enum dtype t,
                    void *dst,
                    const void *a,
                    const void *b,
                    double wa,
                    double wb,
                    size_t n)
{
    double x[BLOCK], y[BLOCK];
    for (size_t off = 0; off < n; off += BLOCK) {
        size_t m = n - off < BLOCK ? n - off : BLOCK;
        doubles_load(t, x, a, off, m);
        doubles_load(t, y, b, off, m);
        for (size_t i = 0; i < m; i++)
            x[i] = wa * x[i] + wb * y[i];
        doubles_store(t, dst, x, off, m);
    }
}
