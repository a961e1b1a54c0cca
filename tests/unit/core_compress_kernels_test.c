/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions and int8 alone: edges, what is refused; and both builds. The bits of
 * ordinary values are tests/python/ranks/capi_codecs.py's. */
#include <float.h>
#include <math.h>

#include "runtime/core/compress/cast.h"
#include "runtime/core/compress/int8.h"
#include "runtime/core/half.h"
#include "tests/unit/codec_kernels.h"

enum { N = 5000 };

/* --- cast --- */

/* 1 + 2^-11 + 2^-40: float32 makes it a tie, which would go down; right is up. */
KERNEL_TEST(float64_is_rounded_once)
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

    cast_narrow(kernels, h, DT_F16, d, DT_F64, 8, 1);
    assert_memory_equal(h, want, sizeof(want));
    cast_narrow(kernels, h, DT_BF16, b, DT_F64, 2, 1);
    assert_int_equal(h[0], 0x3f81);
    assert_int_equal(h[1], 0x3f80);
    cast_narrow(kernels, h, DT_F16, nan_in, DT_F64, 1, 1);
    assert_true(isnan(f32_of_f16(h[0])));
}

KERNEL_TEST(a_scale_is_part_of_the_one_rounding)
{
    struct seeded rnd = {2};
    float f[N];
    double d[N];
    uint16_t h[N], want[N];

    for (int i = 0; i < N; i++) {
        f[i] = any_float(&rnd, -10, 10);
        d[i] = (double)f[i] * (1.0 / 3);
    }
    cast_narrow(kernels, h, DT_F16, f, DT_F32, N, 1.0 / 3);
    cast_narrow(kernels, want, DT_F16, d, DT_F64, N, 1);
    assert_memory_equal(h, want, sizeof(want));
    cast_narrow(kernels, h, DT_BF16, f, DT_F32, N, 1.0 / 3);
    cast_narrow(kernels, want, DT_BF16, d, DT_F64, N, 1);
    assert_memory_equal(h, want, sizeof(want));
    /* before narrowing, so a scale that keeps a value in range does */
    f[0] = 1e6f;
    cast_narrow(kernels, h, DT_F16, f, DT_F32, 1, 1e-3);
    assert_true(f32_of_f16(h[0]) == 1000);
}

KERNEL_TEST(every_type_is_loaded_added_and_stored)
{
    static const enum dtype types[] = {DT_F16, DT_BF16, DT_F32, DT_F64};
    enum { COUNT = 2500 }; /* more than a chunk of cast_add */
    float f[COUNT], g[COUNT];
    double buf[COUNT];

    for (size_t t = 0; t < 4; t++) {
        assert_true(cast_is_float(types[t]));
        for (int i = 0; i < COUNT; i++)
            f[i] = (float)(i % 200);
        cast_store(kernels, buf, types[t], f, COUNT, 0.5);
        cast_load(kernels, g, buf, types[t], COUNT, 1);
        cast_add(kernels, g, buf, types[t], COUNT, 4);
        for (int i = 0; i < COUNT; i++)
            assert_true(g[i] == 2.5f * (float)(i % 200));
        cast_store(kernels, buf, types[t], f, COUNT, 1);
        cast_load(kernels, g, cast_at(buf, types[t], 7), types[t], 1, 3);
        assert_true(g[0] == 21);
        memset(cast_at_out(buf, types[t], 7), 0, dtype_size(types[t]));
        cast_load(kernels, g, buf, types[t], 9, 1);
        assert_true(g[6] == 6 && g[7] == 0 && g[8] == 8);
    }
    assert_false(cast_is_float(DT_I32));
    assert_false(cast_is_float(DT_BOOL));
    cast_load(kernels, f, NULL, DT_F32, 0, 1); /* empty tensors have no memory */
    cast_store(kernels, NULL, DT_F32, f, 0, 1);
}

/* --- int8 --- */

static float scale_at(const uint8_t *wire, uint64_t b)
{
    float s;

    memcpy(&s, wire + b * sizeof(s), sizeof(s));
    return s;
}

KERNEL_TEST(int8_keeps_each_block_to_itself)
{
    float f[1024], out[1024], residual[1024];
    uint8_t wire[2048];
    uint64_t bytes = int8_wire_bytes(1024, 256);

    for (int i = 0; i < 1024; i++) {
        f[i] = i < 256 ? 0 : i < 512 ? 1 : i < 768 ? FLT_MAX : 1e-40f;
        residual[i] = 0;
    }
    f[300] = NAN;
    f[700] = -FLT_MAX;
    int8_encode(kernels, wire, f, DT_F32, 1, residual, 1024, 256);
    assert_int_equal(int8_sum(kernels, out, DT_F32, 1, wire, bytes, 1, 1024, 256, NULL),
                     0);
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
    int8_encode(kernels, wire, f, DT_F32, 1, residual, 1024, 256);
    assert_true(isnan(scale_at(wire, 1)));
    assert_true(residual[301] == 0);
}

KERNEL_TEST(int8_rounds_to_even)
{
    float f[256] = {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, -127};
    static const int8_t want[] = {127, 0, 2, 2, 0, -2, -2, -127};
    uint8_t wire[260];

    int8_encode(kernels, wire, f, DT_F32, 1, NULL, 256, 256);
    assert_true(scale_at(wire, 0) == 1);
    assert_memory_equal(wire + 4, want, sizeof(want));
}

KERNEL_TEST(int8_refuses_invalid_messages)
{
    float f[600] = {1, 2, 3}, out[600], bad = -1;
    uint8_t wire[3 * 700];
    uint64_t each = int8_wire_bytes(600, 512);
    struct err err = ERR_INIT;

    for (uint64_t i = 0; i < 3; i++)
        int8_encode(kernels, wire + i * each, f, DT_F32, 1, NULL, 600, 512);
    assert_int_equal(
        int8_sum(kernels, out, DT_F32, 1, wire, 3 * each, 3, 600, 512, &err), 0);
    assert_int_equal(
        int8_sum(kernels, out, DT_F32, 1, wire, 3 * each - 1, 3, 600, 512, &err),
        -EBADMSG);
    assert_string_equal(err.text,
                        "int8 messages: 1823 bytes of 3 members, must be 608 of each");
    assert_int_equal(int8_sum(kernels, out, DT_F32, 1, wire, 0, 3, 600, 512, &err),
                     -EBADMSG);
    assert_int_equal(
        int8_sum(kernels, out, DT_F32, 1, wire, 3 * each + 1, 3, 600, 512, &err),
        -EBADMSG);
    wire[2 * each + 8 + 599] = 0x80;
    assert_int_equal(
        int8_sum(kernels, out, DT_F32, 1, wire, 3 * each, 3, 600, 512, &err), -EBADMSG);
    assert_string_equal(err.text,
                        "int8 message of member 2: block 1 holds -128, must be "
                        "-127 to 127");
    wire[2 * each + 8 + 599] = 0;
    memcpy(wire + each, &bad, 4);
    assert_int_equal(
        int8_sum(kernels, out, DT_F32, 1, wire, 3 * each, 3, 600, 512, &err), -EBADMSG);
    assert_non_null(
        strstr(err.text, "int8 message of member 1: scale of block 0 is -1"));
    bad = INFINITY;
    memcpy(wire + each, &bad, 4);
    assert_int_equal(
        int8_sum(kernels, out, DT_F32, 1, wire, 3 * each, 3, 600, 512, &err), -EBADMSG);
}

/* Sizes around every vector length; what neither build may see differently. */
UNIT_TEST(the_same_bits_come_out_wide)
{
    enum { LEN = 600 };
    const struct codec_kernels *a = &codec_kernels_base, *b = &codec_kernels_avx2;
    struct seeded rnd = {8};
    float x[4 * LEN], y[LEN], ya[LEN], yb[LEN], ra[4], rb[4];
    uint32_t ia[LEN], ib[LEN];
    int8_t qa[LEN], qb[LEN];
    uint16_t ha[LEN], hb[LEN];

    if (!cpu_is_wide())
        skip();
    for (int round = 0; round < 300; round++) {
        uint32_t n = round < 64 ? (uint32_t)round : 1 + seeded_below(&rnd, LEN - 1);
        const float *const rows[4] = {x, x + LEN, x + 2 * LEN, x + 3 * LEN};
        float f[4] = {any_float(&rnd, -2, 2), any_float(&rnd, -2, 2),
                      any_float(&rnd, -2, 2), any_float(&rnd, -2, 2)};

        for (int i = 0; i < 4 * LEN; i++)
            x[i] = any_float(&rnd, -30, 10);
        for (uint32_t i = 0; i < LEN; i++)
            ya[i] = yb[i] = y[i] = any_float(&rnd, -30, 14);
        a->narrow_f16(ha, y, n);
        b->narrow_f16(hb, y, n);
        assert_memory_equal(ha, hb, n * sizeof(*ha));
        a->widen_f16(ya, ha, n);
        b->widen_f16(yb, ha, n);
        assert_memory_equal(ya, yb, n * sizeof(*ya));
        a->narrow_bf16(ha, y, n);
        b->narrow_bf16(hb, y, n);
        assert_memory_equal(ha, hb, n * sizeof(*ha));
        a->widen_bf16(ya, ha, n);
        b->widen_bf16(yb, ha, n);
        assert_memory_equal(ya, yb, n * sizeof(*ya));
        assert_true(a->int8_code(qa, x, ya, n) == b->int8_code(qb, x, yb, n));
        assert_memory_equal(qa, qb, n);
        assert_memory_equal(ya, yb, n * sizeof(*ya));
        assert_true(a->int8_code(qa, x, NULL, n) == b->int8_code(qb, x, NULL, n));
        assert_memory_equal(qa, qb, n);
        assert_true(a->int8_add(ya, qa, n, 0.3f) && b->int8_add(yb, qa, n, 0.3f));
        assert_memory_equal(ya, yb, n * sizeof(*ya));
        for (uint64_t max = 0; max <= LEN; max += 50) {
            uint64_t na = a->collect(ia, ya, max, y, n, f32_bits(0.1f));
            uint64_t nb = b->collect(ib, yb, max, y, n, f32_bits(0.1f));

            assert_int_equal(na > max, nb > max);
            assert_true(na > max || na == nb);
            if (na <= max) {
                assert_memory_equal(ia, ib, na * sizeof(*ia));
                assert_memory_equal(ya, yb, na * sizeof(*ya));
            }
        }
        a->dot4(ra, y, rows, n);
        b->dot4(rb, y, rows, n);
        assert_memory_equal(ra, rb, sizeof(ra));
        ra[0] = a->dot1(y, x, n);
        assert_true(ra[0] == b->dot1(y, x, n) && ra[0] == rb[0]);
        a->add4(ya, rows, f, n);
        b->add4(yb, rows, f, n);
        a->add1(ya, x, f[1], n);
        b->add1(yb, x, f[1], n);
        assert_memory_equal(ya, yb, n * sizeof(*ya));
    }
}

UNIT_MAIN(NULL, NULL)
