/* SPDX-License-Identifier: Apache-2.0 */
/* PowerSGD (Vogels, Karimireddy and Jaggi, 2019): a gradient M, seen as a matrix, is
 * replaced by P Q^T of low rank, whose factors can be summed over ranks:
 *
 *     P = M Q                  summed over ranks, then made orthonormal
 *     Q = M^T P                summed over ranks, kept as the next step's Q
 *     out = P Q^T              error = M - P (own Q)^T
 *
 * Differences from PyTorch's hook, and why: the error is taken against the rank's own Q
 * instead of the mean (as Algorithm 2 of the paper writes it: the sum over ranks is the
 * same, but a rank's residual is a projection of its own M and cannot drift away when
 * ranks see different data). Q is made orthonormal before it is used, so that P and Q
 * scale as M does, never as its square. Gram-Schmidt runs twice over each vector with
 * sums in float64; a vector that vanishes is left zero and is replaced by a random one
 * in the next step, so that no direction stays zero after a gradient that was zero.
 *
 * The products are tiled so that M is read once; the loops are in kernels.inc.h. Called
 * by codec.c. */
#include "runtime/core/compress/powersgd.h"

#include <float.h>
#include <string.h>

#include "runtime/core/compress/cast.h"

enum {
    TILE = 1024, /* columns of a tile: 4 rows of it and Q's part stay in L1 */
    LANES = 4,
};
#define DEPENDENT                                                                      \
    1e-6 /* a vector this close to the span of earlier ones counts as zero */

static inline bool is_finite(float f)
{
    return f - f == 0;
}

/* splitmix64: a counter in, 64 random bits out */
static uint64_t powersgd_mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

void powersgd_draw(float *v, uint64_t n, uint32_t j, uint64_t seed)
{
    uint64_t start = powersgd_mix(seed + (j + 1ull) * 0xd1342543de82ef95u);

    for (uint64_t i = 0; i < n; i++) {
        uint64_t z = powersgd_mix(start + (i + 1) * 0x9e3779b97f4a7c15u);

        v[i] = (float)(int32_t)(z >> 40) * 0x1p-23f - 1;
    }
}

static double vector_dot(const float *a, const float *b, uint64_t n)
{
    double s[LANES] = {0}, tail = 0;
    uint64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            s[l] += (double)a[i + l] * (double)b[i + l];
    for (; i < n; i++)
        tail += (double)a[i] * (double)b[i];
    return ((s[0] + s[1]) + (s[2] + s[3])) + tail;
}

static void vector_scale(float *v, uint64_t n, double factor)
{
    for (uint64_t i = 0; i < n; i++)
        v[i] = (float)((double)v[i] * factor);
}

/* v -= its part along the unit vector (or zero) u */
static void remove_part(float *v, const float *u, uint64_t n)
{
    double d = vector_dot(u, v, n);

    for (uint64_t i = 0; i < n; i++)
        v[i] = (float)((double)v[i] - d * (double)u[i]);
}

bool powersgd_orthonormal(float *v, uint64_t n, uint32_t rank)
{
    for (uint32_t j = 0; j < rank; j++) {
        float *a = v + j * n;
        double norm = __builtin_sqrt(vector_dot(a, a, n)), rest;

        if (!(norm <= DBL_MAX))
            return false;
        if (norm == 0)
            continue;
        vector_scale(a, n, 1 / norm);
        for (int pass = 0; pass < 2; pass++)
            for (uint32_t i = 0; i < j; i++)
                remove_part(a, v + i * n, n);
        rest = __builtin_sqrt(vector_dot(a, a, n));
        if (rest <= DEPENDENT)
            memset(a, 0, n * sizeof(*a));
        else
            vector_scale(a, n, 1 / rest);
    }
    return true;
}

void powersgd_refresh(float *q, uint64_t n, uint32_t rank, uint64_t seed)
{
    for (uint32_t j = 0; j < rank; j++) {
        double d = vector_dot(q + j * n, q + j * n, n);

        if (!(d > 0 && d <= DBL_MAX))
            powersgd_draw(q + j * n, n, j, seed);
    }
    (void)powersgd_orthonormal(q, n, rank); /* all finite now */
}

void powersgd_right(float *p,
                    const float *m,
                    const float *q,
                    const struct powersgd_shape *s)
{
    for (uint64_t i = 0; i < s->rows; i++) {
        const float *row = m + i * s->cols, *v = q;
        uint32_t j = 0;
        float d[4];

        for (; j + 4 <= s->rank; j += 4, v += 4 * s->cols) {
            const float *const v4[4] = {v, v + s->cols, v + 2 * s->cols,
                                        v + 3 * s->cols};

            s->kernels->dot4(d, row, v4, s->cols);
            for (uint32_t k = 0; k < 4; k++)
                p[(j + k) * s->rows + i] = d[k];
        }
        for (; j < s->rank; j++, v += s->cols)
            p[j * s->rows + i] = s->kernels->dot1(row, v, s->cols);
    }
}

/* One tile of columns, from `at`, of Q = M^T P. */
static void left_tile(float *q,
                      const float *m,
                      const float *p,
                      const struct powersgd_shape *s,
                      uint64_t at,
                      uint64_t n)
{
    uint64_t i = 0;

    for (; i + 4 <= s->rows; i += 4) {
        const float *row = m + i * s->cols + at;
        const float *const r4[4] = {row, row + s->cols, row + 2 * s->cols,
                                    row + 3 * s->cols};

        for (uint32_t j = 0; j < s->rank; j++)
            s->kernels->add4(q + j * s->cols + at, r4, p + j * s->rows + i, n);
    }
    for (; i < s->rows; i++)
        for (uint32_t j = 0; j < s->rank; j++)
            s->kernels->add1(q + j * s->cols + at, m + i * s->cols + at,
                             p[j * s->rows + i], n);
}

void powersgd_left(float *q,
                   const float *m,
                   const float *p,
                   const struct powersgd_shape *s)
{
    memset(q, 0, s->rank * s->cols * sizeof(*q));
    for (uint64_t at = 0; at < s->cols; at += TILE)
        left_tile(q, m, p, s, at, s->cols - at < TILE ? s->cols - at : TILE);
}

/* buf[n] = columns from `at` of row i of P Q^T */
static void powersgd_product(float *buf,
                             const float *p,
                             const float *q,
                             const struct powersgd_shape *s,
                             uint64_t i,
                             uint64_t at,
                             uint64_t n)
{
    uint32_t j = 0;

    memset(buf, 0, n * sizeof(*buf));
    for (; j + 4 <= s->rank; j += 4) {
        const float *c = p + j * s->rows + i, *v = q + j * s->cols + at;
        const float f[4] = {c[0], c[s->rows], c[2 * s->rows], c[3 * s->rows]};
        const float *const v4[4] = {v, v + s->cols, v + 2 * s->cols, v + 3 * s->cols};

        s->kernels->add4(buf, v4, f, n);
    }
    for (; j < s->rank; j++)
        s->kernels->add1(buf, q + j * s->cols + at, p[j * s->rows + i], n);
}

void powersgd_out(void *out,
                  enum dtype t,
                  double factor,
                  const float *p,
                  const float *q,
                  const struct powersgd_shape *s)
{
    float buf[TILE];

    for (uint64_t i = 0; i < s->rows; i++)
        for (uint64_t at = 0; at < s->cols; at += TILE) {
            uint64_t n = s->cols - at < TILE ? s->cols - at : TILE;

            powersgd_product(buf, p, q, s, i, at, n);
            cast_store(s->kernels, cast_at_out(out, t, i * s->cols + at), t, buf, n,
                       factor);
        }
}

void powersgd_subtract(float *m,
                       const float *p,
                       const float *q,
                       const struct powersgd_shape *s)
{
    float buf[TILE];

    for (uint64_t i = 0; i < s->rows; i++)
        for (uint64_t at = 0; at < s->cols; at += TILE) {
            uint64_t n = s->cols - at < TILE ? s->cols - at : TILE;
            float *restrict row = m + i * s->cols + at;

            powersgd_product(buf, p, q, s, i, at, n);
            for (uint64_t k = 0; k < n; k++) {
                float rest = row[k] - buf[k];

                row[k] = is_finite(rest) ? rest : 0;
            }
        }
}
