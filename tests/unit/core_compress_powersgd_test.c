/* SPDX-License-Identifier: Apache-2.0 */
/* The linear algebra of PowerSGD alone. */
#include <float.h>
#include <math.h>

#include "runtime/core/compress/powersgd.h"
#include "tests/unit/codec_kernels.h"

UNIT_TEST(vectors_are_made_orthonormal)
{
    enum { LEN = 203, RANK = 7 };
    float v[RANK * LEN];

    for (uint32_t j = 0; j < RANK; j++)
        powersgd_draw(v + j * LEN, LEN, j, 42);
    for (int i = 0; i < LEN; i++) {
        v[2 * LEN + i] =
            v[0 * LEN + i] * 3 - v[LEN + i]; /* in the span of two others */
        v[4 * LEN + i] = 0;
        v[5 * LEN + i] = v[3 * LEN + i] + 1e-3f * v[5 * LEN + i]; /* nearly so */
        v[6 * LEN + i] *= 1e-30f;
    }
    assert_true(powersgd_orthonormal(v, LEN, RANK));
    for (int a = 0; a < RANK; a++)
        for (int b = 0; b < RANK; b++) {
            bool is_zero = a == 2 || a == 4 || b == 2 || b == 4;
            double d = 0;

            for (int i = 0; i < LEN; i++)
                d += (double)v[a * LEN + i] * (double)v[b * LEN + i];
            assert_true(fabs(d - (a == b && !is_zero ? 1 : 0)) < 1e-6);
        }
    v[5] = NAN;
    assert_false(powersgd_orthonormal(v, LEN, RANK));
}

UNIT_TEST(dead_directions_are_drawn_again)
{
    float q[3 * 50];

    powersgd_draw(q, 150, 0, 1);
    memset(q + 50, 0, 50 * sizeof(*q));
    q[120] = INFINITY;
    powersgd_refresh(q, 50, 3, 9);
    for (int a = 0; a < 3; a++)
        for (int b = 0; b <= a; b++) {
            double d = 0;

            for (int i = 0; i < 50; i++)
                d += (double)q[a * 50 + i] * (double)q[b * 50 + i];
            assert_true(fabs(d - (a == b)) < 1e-6);
        }
}

/* Against plain loops in float64; sizes around the tiles of 4 rows, 4 vectors and 1024
 * columns. */
KERNEL_TEST(products_are_right)
{
    static const uint64_t shapes[][3] = {{1, 1, 1},    {3, 5, 1},   {4, 4, 4},
                                         {7, 1030, 3}, {33, 65, 6}, {5, 2100, 9}};
    struct seeded rnd = {5};

    for (size_t c = 0; c < 6; c++) {
        struct powersgd_shape s = {kernels, shapes[c][0], shapes[c][1],
                                   (uint32_t)shapes[c][2]};
        float *m = calloc(s.rows * s.cols, 4), *out = calloc(s.rows * s.cols, 4);
        float *p = calloc(s.rank * s.rows, 4), *q = calloc(s.rank * s.cols, 4);
        float *p2 = calloc(s.rank * s.rows, 4), *q2 = calloc(s.rank * s.cols, 4);

        assert_true(m && out && p && q && p2 && q2);
        for (uint64_t i = 0; i < s.rows * s.cols; i++)
            m[i] = any_float(&rnd, -3, 1);
        powersgd_draw(p, s.rank * s.rows, 0, 1);
        powersgd_draw(q, s.rank * s.cols, 1, 1);
        powersgd_right(p2, m, q, &s);
        powersgd_left(q2, m, p, &s);
        for (uint32_t j = 0; j < s.rank; j++) {
            for (uint64_t i = 0; i < s.rows; i++) {
                double d = 0;

                for (uint64_t k = 0; k < s.cols; k++)
                    d += (double)m[i * s.cols + k] * (double)q[j * s.cols + k];
                assert_true(fabs(d - (double)p2[j * s.rows + i])
                            < 1e-6 * (double)s.cols);
            }
            for (uint64_t k = 0; k < s.cols; k++) {
                double d = 0;

                for (uint64_t i = 0; i < s.rows; i++)
                    d += (double)m[i * s.cols + k] * (double)p[j * s.rows + i];
                assert_true(fabs(d - (double)q2[j * s.cols + k])
                            < 1e-6 * (double)s.rows);
            }
        }
        powersgd_out(out, DT_F32, 2, p, q, &s);
        powersgd_subtract(m, p, q, &s);
        powersgd_subtract(m, p, q, &s);
        for (uint64_t i = 0; i < s.rows * s.cols; i++)
            out[i] += m[i]; /* m again */
        powersgd_right(p, out, q, &s);
        for (uint64_t i = 0; i < s.rank * s.rows; i++)
            assert_true(fabsf(p[i] - p2[i]) < 3e-6f * (float)s.cols);
        free(m);
        free(out);
        free(p);
        free(q);
        free(p2);
        free(q2);
    }
}

UNIT_MAIN(NULL, NULL)
