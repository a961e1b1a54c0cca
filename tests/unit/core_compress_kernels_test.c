/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of compression alone: error bounds, choice, what is refused. */
#include <errno.h>
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/core/compress/cast.h"
#include "runtime/core/compress/int8.h"
#include "runtime/core/compress/powersgd.h"
#include "runtime/core/compress/topk.h"
#include "runtime/core/half.h"
#include "tests/unit/seeded.h"

enum { N = 5000 };

/* Spread over many binary orders, both signs. */
static float any_float(struct seeded *r, int low_exp, int high_exp)
{
    int e = low_exp + (int)seeded_below(r, (uint32_t)(high_exp - low_exp));
    float m = 1 + (float)(seeded_next(r) >> 41) * 0x1p-23f;

    return ldexpf(seeded_next(r) & 1 ? m : -m, e);
}

/* --- cast --- */

static void halves_are_within_their_bounds(void **state)
{
    struct seeded rnd = {1};
    float f[N], back[N];
    double d[N], back64[N];
    uint16_t h[N];

    (void)state;
    for (int i = 0; i < N; i++)
        d[i] = (double)(f[i] = any_float(&rnd, -14, 15));
    cast_narrow(h, DT_F16, f, DT_F32, N, 1);
    cast_widen(back, DT_F32, h, DT_F16, N);
    for (int i = 0; i < N; i++)
        assert_true(fabs((double)back[i] - d[i]) <= fabs(d[i]) * 0x1p-11);
    cast_narrow(h, DT_BF16, d, DT_F64, N, 1);
    cast_widen(back64, DT_F64, h, DT_BF16, N);
    for (int i = 0; i < N; i++)
        assert_true(fabs(back64[i] - d[i]) <= fabs(d[i]) * 0x1p-8);
}

/* 1 + 2^-11 + 2^-40: float32 makes it a tie, which would go down; right is up. */
static void float64_is_rounded_once(void **state)
{
    double d[] = {1 + 0x1p-11 + 0x1p-40,
                  -(1 + 0x1p-11 + 0x1p-40),
                  1 + 3 * 0x1p-11 - 0x1p-40,
                  1 + 0x1p-11,
                  0x1p-25 + 0x1p-70,
                  1e300,
                  -INFINITY,
                  0x1p-300};
    static const uint16_t want[] = {0x3c01, 0xbc01, 0x3c01, 0x3c00,
                                    0x0001, 0x7c00, 0xfc00, 0x0000};
    double b[] = {1 + 0x1p-8 + 0x1p-50, 1 + 0x1p-8};
    double nan_in[] = {NAN};
    uint16_t h[8];

    (void)state;
    cast_narrow(h, DT_F16, d, DT_F64, 8, 1);
    assert_memory_equal(h, want, sizeof(want));
    cast_narrow(h, DT_BF16, b, DT_F64, 2, 1);
    assert_int_equal(h[0], 0x3f81);
    assert_int_equal(h[1], 0x3f80);
    cast_narrow(h, DT_F16, nan_in, DT_F64, 1, 1);
    assert_true(isnan(f32_of_f16(h[0])));
}

static void a_scale_is_part_of_the_one_rounding(void **state)
{
    struct seeded rnd = {2};
    float f[N];
    double d[N];
    uint16_t h[N], want[N];

    (void)state;
    for (int i = 0; i < N; i++) {
        f[i] = any_float(&rnd, -10, 10);
        d[i] = (double)f[i] * (1.0 / 3);
    }
    cast_narrow(h, DT_F16, f, DT_F32, N, 1.0 / 3);
    cast_narrow(want, DT_F16, d, DT_F64, N, 1);
    assert_memory_equal(h, want, sizeof(want));
    cast_narrow(h, DT_BF16, f, DT_F32, N, 1.0 / 3);
    cast_narrow(want, DT_BF16, d, DT_F64, N, 1);
    assert_memory_equal(h, want, sizeof(want));
    /* before narrowing, so a scale that keeps a value in range does */
    f[0] = 1e6f;
    cast_narrow(h, DT_F16, f, DT_F32, 1, 1e-3);
    assert_true(f32_of_f16(h[0]) == 1000);
}

static void every_type_is_loaded_added_and_stored(void **state)
{
    static const enum dtype types[] = {DT_F16, DT_BF16, DT_F32, DT_F64};
    enum { COUNT = 2500 }; /* more than a chunk of cast_add */
    float f[COUNT], g[COUNT];
    double buf[COUNT];

    (void)state;
    for (size_t t = 0; t < 4; t++) {
        assert_true(cast_is_float(types[t]));
        for (int i = 0; i < COUNT; i++)
            f[i] = (float)(i % 200);
        cast_store(buf, types[t], f, COUNT, 0.5);
        cast_load(g, buf, types[t], COUNT, 1);
        cast_add(g, buf, types[t], COUNT, 4);
        for (int i = 0; i < COUNT; i++)
            assert_true(g[i] == 2.5f * (float)(i % 200));
        cast_store(buf, types[t], f, COUNT, 1);
        cast_load(g, cast_at(buf, types[t], 7), types[t], 1, 3);
        assert_true(g[0] == 21);
        memset(cast_at_out(buf, types[t], 7), 0, dtype_size(types[t]));
        cast_load(g, buf, types[t], 9, 1);
        assert_true(g[6] == 6 && g[7] == 0 && g[8] == 8);
    }
    assert_false(cast_is_float(DT_I32));
    assert_false(cast_is_float(DT_BOOL));
    cast_load(f, NULL, DT_F32, 0, 1); /* empty tensors have no memory */
    cast_store(NULL, DT_F32, f, 0, 1);
}

/* --- int8 --- */

static float scale_at(const uint8_t *wire, uint64_t b)
{
    float s;

    memcpy(&s, wire + b * sizeof(s), sizeof(s));
    return s;
}

static void int8_is_within_half_a_scale(void **state)
{
    static const uint32_t counts[] = {1, 2, 255, 256, 257, 1023, 1024, 1025, N};
    struct seeded rnd = {3};
    float f[N], out[N], residual[N];
    uint8_t wire[2 * N];

    (void)state;
    for (uint32_t block = 256; block <= 1024; block *= 2)
        for (size_t c = 0; c < 9; c++) {
            uint32_t n = counts[c];
            uint64_t bytes = int8_wire_bytes(n, block);

            assert_int_equal(bytes, (n + block - 1) / block * 4 + n);
            for (uint32_t i = 0; i < n; i++)
                f[i] = any_float(&rnd, -20, 20);
            memset(residual, 0, sizeof(residual));
            memset(wire, 0xee, sizeof(wire));
            int8_encode(wire, f, DT_F32, 1, residual, n, block);
            assert_int_equal(wire[bytes], 0xee); /* as many as told, not one more */
            assert_int_equal(int8_sum(out, DT_F32, 1, wire, bytes, 1, n, block, NULL),
                             0);
            for (uint32_t i = 0; i < n; i++) {
                double s = (double)scale_at(wire, i / block);

                assert_true(fabs((double)out[i] - (double)f[i])
                            <= s / 2 * (1 + 0x1p-14));
                assert_true(out[i] + residual[i] == f[i]
                            || fabsf(out[i] + residual[i] - f[i])
                                   <= fabsf(f[i]) * 0x1p-22f);
            }
        }
}

static void int8_keeps_each_block_to_itself(void **state)
{
    float f[1024], out[1024], residual[1024];
    uint8_t wire[2048];
    uint64_t bytes = int8_wire_bytes(1024, 256);

    (void)state;
    for (int i = 0; i < 1024; i++) {
        f[i] = i < 256 ? 0 : i < 512 ? 1 : i < 768 ? FLT_MAX : 1e-40f;
        residual[i] = 0;
    }
    f[300] = NAN;
    f[700] = -FLT_MAX;
    int8_encode(wire, f, DT_F32, 1, residual, 1024, 256);
    assert_int_equal(int8_sum(out, DT_F32, 1, wire, bytes, 1, 1024, 256, NULL), 0);
    for (int i = 0; i < 1024; i++) {
        assert_true(i >= 256 || out[i] == 0);
        assert_true(i / 256 != 1 || isnan(out[i]));
        assert_true(i / 256 != 2 || fabsf(out[i] / FLT_MAX) > 0.9999f);
        assert_true(i / 256 != 2 || isfinite(out[i]));
        /* too small for the wire: sent as zero, kept for the next step */
        assert_true(i < 768 || (out[i] == 0 && residual[i] == 1e-40f));
        assert_true(isfinite(residual[i]));
    }
    f[300] = INFINITY;
    int8_encode(wire, f, DT_F32, 1, residual, 1024, 256);
    assert_true(isnan(scale_at(wire, 1)));
    assert_true(residual[301] == 0);
}

static void int8_rounds_to_even(void **state)
{
    float f[256] = {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, -127};
    static const int8_t want[] = {127, 0, 2, 2, 0, -2, -2, -127};
    uint8_t wire[260];

    (void)state;
    int8_encode(wire, f, DT_F32, 1, NULL, 256, 256);
    assert_true(scale_at(wire, 0) == 1);
    assert_memory_equal(wire + 4, want, sizeof(want));
}

static void int8_refuses_what_no_encoder_writes(void **state)
{
    float f[600] = {1, 2, 3}, out[600], bad = -1;
    uint8_t wire[3 * 700];
    uint64_t each = int8_wire_bytes(600, 512);
    struct err err = ERR_INIT;

    (void)state;
    for (uint64_t i = 0; i < 3; i++)
        int8_encode(wire + i * each, f, DT_F32, 1, NULL, 600, 512);
    assert_int_equal(int8_sum(out, DT_F32, 1, wire, 3 * each, 3, 600, 512, &err), 0);
    assert_int_equal(int8_sum(out, DT_F32, 1, wire, 3 * each - 1, 3, 600, 512, &err),
                     -EBADMSG);
    assert_string_equal(err.text,
                        "int8 messages: 1823 bytes of 3 members, must be 608 of each");
    assert_int_equal(int8_sum(out, DT_F32, 1, wire, 0, 3, 600, 512, &err), -EBADMSG);
    wire[2 * each + 8 + 599] = 0x80;
    assert_int_equal(int8_sum(out, DT_F32, 1, wire, 3 * each, 3, 600, 512, &err),
                     -EBADMSG);
    assert_string_equal(err.text,
                        "int8 message of member 2: block 1 holds -128, must be "
                        "-127 to 127");
    wire[2 * each + 8 + 599] = 0;
    memcpy(wire + each, &bad, 4);
    assert_int_equal(int8_sum(out, DT_F32, 1, wire, 3 * each, 3, 600, 512, &err),
                     -EBADMSG);
    assert_non_null(
        strstr(err.text, "int8 message of member 1: scale of block 0 is -1"));
    bad = INFINITY;
    memcpy(wire + each, &bad, 4);
    assert_int_equal(int8_sum(out, DT_F32, 1, wire, 3 * each, 3, 600, 512, &err),
                     -EBADMSG);
}

/* --- topk --- */

static int by_rank(const void *pa, const void *pb)
{
    const float *a = *(float *const *)pa, *b = *(float *const *)pb;
    float x = isnan(*a) ? INFINITY : fabsf(*a), y = isnan(*b) ? INFINITY : fabsf(*b);

    if (isnan(*a) != isnan(*b))
        return isnan(*a) ? -1 : 1;
    return x != y ? (x > y ? -1 : 1) : a < b ? -1 : 1;
}

/* By sorting: which k are the largest, ties to the lowest index. */
static void topk_reference(const float *w, uint32_t n, uint32_t k, bool *chosen)
{
    const float **v = calloc(n, sizeof(*v));

    assert_non_null(v);
    for (uint32_t i = 0; i < n; i++)
        v[i] = &w[i];
    qsort(v, n, sizeof(*v), by_rank);
    memset(chosen, 0, n);
    for (uint32_t i = 0; i < k; i++)
        chosen[v[i] - w] = true;
    free(v);
}

static void check_topk(const float *f, uint32_t n, uint32_t k)
{
    float w[N], out[N];
    bool chosen[N];
    uint8_t *wire = malloc(8ul * k + 1);

    assert_non_null(wire);
    wire[8ul * k] = 0xee;
    memcpy(w, f, n * sizeof(*w));
    topk_reference(f, n, k, chosen);
    assert_int_equal(topk_wire_bytes(n, k), 8ul * k);
    topk_encode(wire, w, n, k);
    assert_int_equal(wire[8ul * k], 0xee);
    assert_int_equal(topk_sum(out, wire, 8ul * k, 1, n, k, NULL), 0);
    for (uint32_t i = 0; i < n; i++) {
        float sent = chosen[i] ? f[i] : 0,
              kept = chosen[i] || !isfinite(f[i]) ? 0 : f[i];

        assert_true(out[i] == sent || (isnan(out[i]) && isnan(sent)));
        assert_true(w[i] == kept);
    }
    free(wire);
}

static void topk_is_what_sorting_chooses(void **state)
{
    static const uint32_t counts[] = {1, 2, 3, 100, 1023, N};
    struct seeded rnd = {4};
    float f[N];

    (void)state;
    for (size_t c = 0; c < 6; c++)
        for (int kind = 0; kind < 5; kind++) {
            uint32_t n = counts[c];

            for (uint32_t i = 0; i < n; i++)
                f[i] = kind == 0   ? any_float(&rnd, -40, 40)
                       : kind == 1 ? (float)((int)seeded_below(&rnd, 7) - 3) /* ties */
                       : kind == 2 ? 0
                       : kind == 3 ? f32_of_bits((uint32_t)seeded_next(&rnd)) /* any */
                                   : f32_of_bits(seeded_below(&rnd, 3000));   /* tiny */
            check_topk(f, n, 1);
            check_topk(f, n, n / 100 + 1);
            check_topk(f, n, n / 2 + 1);
            check_topk(f, n, n);
        }
}

static void nan_counts_as_largest_and_does_not_stay(void **state)
{
    float f[6] = {1, NAN, INFINITY, -NAN, -INFINITY, 7};

    (void)state;
    for (uint32_t k = 1; k <= 6; k++)
        check_topk(f, 6, k);
}

static void nothing_of_nothing(void **state)
{
    uint8_t wire[8] = {0xee};
    float none[1] = {5};

    (void)state;
    topk_encode(wire, none, 0, 0);
    topk_encode(wire, none, 1, 0);
    assert_int_equal(wire[0], 0xee);
    assert_true(none[0] == 5);
    assert_int_equal(topk_sum(none, wire, 0, 1, 1, 0, NULL), 0);
    assert_true(none[0] == 0);
    assert_int_equal(int8_wire_bytes(0, 256), 0);
    int8_encode(wire, none, DT_F32, 1, NULL, 0, 256);
    assert_int_equal(wire[0], 0xee);
    assert_int_equal(int8_sum(none, DT_F32, 1, wire, 0, 3, 0, 256, NULL), 0);
}

static void wide_indexes_begin_above_32_bits(void **state)
{
    (void)state;
    assert_int_equal(topk_index_bytes(UINT32_MAX), 4);
    assert_int_equal(topk_index_bytes(UINT32_MAX + 1ull), 8);
    assert_int_equal(topk_wire_bytes(1ull << 40, 10), 120);
}

static void topk_refuses_bad_indexes(void **state)
{
    float w[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, acc[10];
    struct err err = ERR_INIT;
    uint32_t index[3];
    uint8_t wire[48];

    (void)state;
    topk_encode(wire, w, 10, 3);
    topk_encode(wire + 24, w, 10, 3);
    assert_int_equal(topk_sum(acc, wire, 48, 2, 10, 3, &err), 0);
    assert_true(acc[9] == 10 && acc[7] == 8 && acc[6] == 7 && acc[3] == 0);
    assert_int_equal(topk_sum(acc, wire, 47, 2, 10, 3, &err), -EBADMSG);
    assert_string_equal(err.text,
                        "top-k messages: 47 bytes of 2 members, must be 24 of each");
    memcpy(index, wire + 24, sizeof(index));
    index[2] = 10;
    memcpy(wire + 24, index, sizeof(index));
    assert_int_equal(topk_sum(acc, wire, 48, 2, 10, 3, &err), -EBADMSG);
    assert_string_equal(err.text,
                        "top-k message of member 1: index 10 at place 2 of a tensor of "
                        "10 elements");
    index[2] = index[1];
    memcpy(wire + 24, index, sizeof(index));
    assert_int_equal(topk_sum(acc, wire, 48, 2, 10, 3, &err), -EBADMSG);
    assert_string_equal(err.text,
                        "top-k message of member 1: index 5 at place 2 is not "
                        "above the one before");
}

/* --- powersgd --- */

static void vectors_are_made_orthonormal(void **state)
{
    enum { LEN = 203, RANK = 7 };
    float v[RANK * LEN];

    (void)state;
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

static void draws_are_functions_of_their_arguments(void **state)
{
    float a[1000], b[1000], mean = 0;

    (void)state;
    powersgd_draw(a, 1000, 1, 7);
    powersgd_draw(b, 1000, 1, 7);
    assert_memory_equal(a, b, sizeof(a));
    powersgd_draw(b, 1000, 2, 7);
    assert_memory_not_equal(a, b, sizeof(a));
    powersgd_draw(b, 1000, 1, 8);
    assert_memory_not_equal(a, b, sizeof(a));
    for (int i = 0; i < 1000; i++) {
        assert_true(a[i] >= -1 && a[i] < 1);
        mean += a[i] / 1000;
    }
    assert_true(fabsf(mean) < 0.1f);
}

static void dead_directions_are_drawn_anew(void **state)
{
    float q[3 * 50];

    (void)state;
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
static void products_are_right(void **state)
{
    static const struct powersgd_shape shapes[] = {
        {1, 1, 1}, {3, 5, 1}, {4, 4, 4}, {7, 1030, 3}, {33, 65, 6}, {5, 2100, 9}};
    struct seeded rnd = {5};

    (void)state;
    for (size_t c = 0; c < 6; c++) {
        struct powersgd_shape s = shapes[c];
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves_are_within_their_bounds),
        cmocka_unit_test(float64_is_rounded_once),
        cmocka_unit_test(a_scale_is_part_of_the_one_rounding),
        cmocka_unit_test(every_type_is_loaded_added_and_stored),
        cmocka_unit_test(int8_is_within_half_a_scale),
        cmocka_unit_test(int8_keeps_each_block_to_itself),
        cmocka_unit_test(int8_rounds_to_even),
        cmocka_unit_test(int8_refuses_what_no_encoder_writes),
        cmocka_unit_test(topk_is_what_sorting_chooses),
        cmocka_unit_test(nan_counts_as_largest_and_does_not_stay),
        cmocka_unit_test(nothing_of_nothing),
        cmocka_unit_test(wide_indexes_begin_above_32_bits),
        cmocka_unit_test(topk_refuses_bad_indexes),
        cmocka_unit_test(vectors_are_made_orthonormal),
        cmocka_unit_test(draws_are_functions_of_their_arguments),
        cmocka_unit_test(dead_directions_are_drawn_anew),
        cmocka_unit_test(products_are_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
