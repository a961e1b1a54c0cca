/* SPDX-License-Identifier: Apache-2.0 */
/* Reduction kernels and 16-bit conversions against a scalar reference in double, for
 * both builds. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/backend/cpu/half.h"
#include "runtime/backend/cpu/reduce.h"

/* Independent of half.h: value by its definition, conversion by search among all 65536
 * values. */
static double value_of_half(uint16_t h, int mantissa_bits, int bias)
{
    int exp_bits = 15 - mantissa_bits, e_max = (1 << exp_bits) - 1;
    int e = (h >> mantissa_bits) & e_max;
    double m = h & ((1 << mantissa_bits) - 1), scale = ldexp(1, mantissa_bits);
    double v = e == e_max ? (m != 0 ? (double)NAN : (double)INFINITY)
               : e == 0   ? ldexp(m / scale, 1 - bias)
                          : ldexp(1 + m / scale, e - bias);
    return h & 0x8000 ? -v : v;
}

static double f16_value(uint16_t h)
{
    return value_of_half(h, 10, 15);
}

static double bf16_value(uint16_t h)
{
    return value_of_half(h, 7, 127);
}

/* Nearest finite neighbour, ties to even; beyond the midpoint to the next power:
 * infinity. */
static uint16_t narrow_reference(double x, double (*value)(uint16_t), uint16_t inf)
{
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    double a = fabs(x);
    uint16_t lo = 0, hi = inf; /* magnitudes grow with their bits */
    double top = value((uint16_t)(inf - 1)), step = top - value((uint16_t)(inf - 2));
    if (a >= top + step / 2)
        return sign | inf;
    while (hi - lo > 1) {
        uint16_t mid = (uint16_t)((lo + hi) / 2);
        if (value(mid) <= a)
            lo = mid;
        else
            hi = mid;
    }
    if (hi == inf)
        return sign | lo;
    double down = a - value(lo), up = value(hi) - a;
    bool take_lo = down < up || (down == up && (lo & 1) == 0);
    return sign | (take_lo ? lo : hi);
}

static void widening_is_exact_for_every_value(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        double a = f16_value((uint16_t)h), b = bf16_value((uint16_t)h);
        float fa = f32_of_f16((uint16_t)h), fb = f32_of_bf16((uint16_t)h);
        assert_true(isnan(a) ? isnan(fa)
                             : (double)fa == a && !signbit(fa) == !signbit(a));
        assert_true(isnan(b) ? isnan(fb)
                             : (double)fb == b && !signbit(fb) == !signbit(b));
    }
}

static void narrowing_undoes_widening(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        if (!isnan(f16_value((uint16_t)h)))
            assert_int_equal(f16_of_f32(f32_of_f16((uint16_t)h)), h);
        else
            assert_true(isnan(f16_value(f16_of_f32(f32_of_f16((uint16_t)h)))));
        if (!isnan(bf16_value((uint16_t)h)))
            assert_int_equal(bf16_of_f32(f32_of_bf16((uint16_t)h)), h);
        else
            assert_true(isnan(bf16_value(bf16_of_f32(f32_of_bf16((uint16_t)h)))));
    }
}

static void narrowing_rounds_to_nearest_even(void **state)
{
    (void)state;
    uint32_t x = 12345;
    for (int i = 0; i < 400000; i++) {
        x = x * 1664525u + 1013904223u;
        float f = f32_of_bits(x);
        if (isnan(f))
            continue;
        assert_int_equal(f16_of_f32(f), narrow_reference((double)f, f16_value, 0x7c00));
        assert_int_equal(bf16_of_f32(f),
                         narrow_reference((double)f, bf16_value, 0x7f80));
    }
    for (uint32_t h = 0; h < 0x7bff; h++) { /* every tie and its neighbours */
        float mid =
            (float)((f16_value((uint16_t)h) + f16_value((uint16_t)(h + 1))) / 2);
        float v[] = {mid, nextafterf(mid, 0), nextafterf(mid, INFINITY), -mid};
        for (int k = 0; k < 4; k++)
            assert_int_equal(f16_of_f32(v[k]),
                             narrow_reference((double)v[k], f16_value, 0x7c00));
    }
    assert_int_equal(f16_of_f32(65519.996f), 0x7bff);
    assert_int_equal(f16_of_f32(65520.0f), 0x7c00);
    assert_int_equal(f16_of_f32(-INFINITY), 0xfc00);
}

/* --- kernels
 * ------------------------------------------------------------------------------------
 */

static double load(enum dtype t, const void *p, size_t i)
{
    switch (t) {
    case DT_I32:
        return ((const int32_t *)p)[i];
    case DT_I64:
        return (double)((const int64_t *)p)[i];
    case DT_F16:
        return f16_value(((const uint16_t *)p)[i]);
    case DT_BF16:
        return bf16_value(((const uint16_t *)p)[i]);
    case DT_F32:
        return (double)((const float *)p)[i];
    case DT_F64:
        return ((const double *)p)[i];
    case DT_U8:
    case DT_I8:
    case DT_U16:
    case DT_I16:
    case DT_BOOL:
    case DT_COUNT:
        break;
    }
    fail();
    return 0;
}

static void store(enum dtype t, void *p, size_t i, double x)
{
    if (t == DT_I32)
        ((int32_t *)p)[i] = (int32_t)x;
    else if (t == DT_I64)
        ((int64_t *)p)[i] = (int64_t)x;
    else if (t == DT_F16)
        ((uint16_t *)p)[i] = narrow_reference(x, f16_value, 0x7c00);
    else if (t == DT_BF16)
        ((uint16_t *)p)[i] = narrow_reference(x, bf16_value, 0x7f80);
    else if (t == DT_F32)
        ((float *)p)[i] = (float)x;
    else
        ((double *)p)[i] = x;
}

static const enum dtype reducible[] = {DT_I32, DT_I64, DT_F16, DT_BF16, DT_F32, DT_F64};

enum { MAX_SRC = 5, MAX_N = 2500 };

/* Sums of small multiples of 1/8 are exact in every float format here, so equality is
 * asked for. */
static double input(enum dtype t, size_t k, size_t i)
{
    double x = (double)((int)(i * 7 + k * 3) % 11 - 5);
    return t == DT_I32 || t == DT_I64 ? x * 1000 : x / 8;
}

static void check_sum(enum dtype t, bool wide, size_t n_src, size_t n, struct finish f)
{
    const struct kernel *k = kernel_for(t, wide);
    size_t es = k->elem_bytes;
    uint8_t *src[MAX_SRC], *dst = malloc(n * es + 1), *dst2 = malloc(n * es + 1);
    for (size_t s = 0; s < n_src; s++) {
        src[s] = malloc(n * es + 1);
        for (size_t i = 0; i < n; i++)
            store(t, src[s], i, input(t, s, i));
    }
    dst[n * es] = dst2[n * es] = 0x5a;
    k->sum(dst, dst2, (const void *const *)src, n_src, n, &f);
    for (size_t i = 0; i < n; i++) {
        double want = 0;
        uint8_t ref[8];
        for (size_t s = 0; s < n_src; s++)
            want += input(t, s, i);
        want = trunc(want / (double)f.divisor * 1e6) / 1e6; /* ints: exact below */
        if (t == DT_I32 || t == DT_I64)
            want = trunc(trunc(want) * f.factor);
        else
            want *= f.factor;
        store(t, ref, 0, want);
        if (load(t, dst, i) != load(t, ref, 0))
            fail_msg("%s wide=%d src=%zu n=%zu [%zu]: %g, not %g", dtype_name(t), wide,
                     n_src, n, i, load(t, dst, i), load(t, ref, 0));
    }
    assert_memory_equal(dst, dst2, n * es + 1);
    /* in place over any source gives the same */
    k->sum(src[n_src - 1], NULL, (const void *const *)src, n_src, n, &f);
    assert_memory_equal(src[n_src - 1], dst, n * es);
    for (size_t s = 0; s < n_src; s++)
        free(src[s]);
    free(dst);
    free(dst2);
}

static void sums_match_the_reference(void **state)
{
    (void)state;
    const size_t counts[] = {0, 1, 7, 8, 9, 1023, 1024, 1025, 2500};
    for (size_t d = 0; d < sizeof reducible / sizeof *reducible; d++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            for (size_t n_src = 1; n_src <= MAX_SRC; n_src++)
                for (int wide = 0; wide <= kernel_has_wide(); wide++) {
                    enum dtype t = reducible[d];
                    bool is_int = t == DT_I32 || t == DT_I64;
                    check_sum(t, wide, n_src, counts[c], FINISH_NONE);
                    check_sum(t, wide, n_src, counts[c], (struct finish){0.5, 1});
                    if (is_int) {
                        check_sum(t, wide, n_src, counts[c], (struct finish){1, 3});
                        check_sum(t, wide, n_src, counts[c], (struct finish){2.5, 7});
                    }
                }
}

static void sixteen_bit_sums_round_once(void **state)
{
    (void)state;
    /* 2048 + 1 + 1: rounding after each step would give 2048, float32 in between gives
     * 2050 */
    uint16_t a = f16_of_f32(2048), b = f16_of_f32(1), r;
    const void *src[] = {&a, &b, &b};
    struct finish f = FINISH_NONE;
    for (int wide = 0; wide <= kernel_has_wide(); wide++) {
        kernel_for(DT_F16, wide)->sum(&r, NULL, src, 3, 1, &f);
        assert_true(f32_of_f16(r) == 2050);
    }
    a = bf16_of_f32(256), b = bf16_of_f32(1);
    for (int wide = 0; wide <= kernel_has_wide(); wide++) {
        kernel_for(DT_BF16, wide)->sum(&r, NULL, src, 3, 1, &f);
        assert_true(f32_of_bf16(r) == 258);
    }
}

static void special_values_survive_in_every_build(void **state)
{
    (void)state;
    enum { N = 65536 };
    uint16_t *v = malloc(N * 2), *w = malloc(N * 2), *out = malloc(N * 2);
    const void *src[] = {v};
    struct finish f = FINISH_NONE;
    for (uint32_t i = 0; i < N; i++)
        v[i] = (uint16_t)i;
    for (int wide = 0; wide <= kernel_has_wide(); wide++) {
        kernel_for(DT_F16, wide)->sum(out, NULL, src, 1, N, &f);
        for (uint32_t i = 0; i < N; i++)
            assert_true(isnan(f16_value(v[i])) ? isnan(f16_value(out[i]))
                                               : out[i] == v[i]);
        kernel_for(DT_BF16, wide)->sum(w, NULL, src, 1, N, &f);
        for (uint32_t i = 0; i < N; i++)
            assert_true(isnan(bf16_value(v[i])) ? isnan(bf16_value(w[i]))
                                                : w[i] == v[i]);
    }
    free(v);
    free(w);
    free(out);
}

static void integers_wrap_and_scaling_saturates(void **state)
{
    (void)state;
    int32_t a = INT32_MAX, b = 1, r;
    int64_t c = INT64_MIN, d = -1, q;
    const void *src[] = {&a, &b}, *src8[] = {&c, &d};
    struct finish f = FINISH_NONE;
    for (int wide = 0; wide <= kernel_has_wide(); wide++) {
        kernel_for(DT_I32, wide)->sum(&r, NULL, src, 2, 1, &f);
        assert_true(r == INT32_MIN);
        kernel_for(DT_I64, wide)->sum(&q, NULL, src8, 2, 1, &f);
        assert_true(q == INT64_MAX);
        kernel_for(DT_I32, wide)->sum(&r, NULL, src, 1, 1, &(struct finish){4, 1});
        assert_true(r == INT32_MAX);
        kernel_for(DT_I64, wide)->sum(&q, NULL, src8, 1, 1, &(struct finish){1e9, 1});
        assert_true(q == INT64_MIN);
    }
}

static void average_folds_into_the_factor_or_divides(void **state)
{
    (void)state;
    struct finish f = finish_of(DT_F32, OP_AVERAGE, 3.0, 4);
    assert_true(f.factor == 0.75 && f.divisor == 1);
    f = finish_of(DT_I64, OP_AVERAGE, 1.0, 4);
    assert_true(f.factor == 1.0 && f.divisor == 4);
    f = finish_of(DT_F16, OP_SUM, 2.0, 4);
    assert_true(f.factor == 2.0 && f.divisor == 1);
}

static void what_cannot_be_reduced_has_no_kernel(void **state)
{
    (void)state;
    assert_null(kernel_for(DT_BOOL, false));
    assert_null(kernel_for(DT_U8, false));
    assert_null(kernel_for((enum dtype)99, false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(widening_is_exact_for_every_value),
        cmocka_unit_test(narrowing_undoes_widening),
        cmocka_unit_test(narrowing_rounds_to_nearest_even),
        cmocka_unit_test(sums_match_the_reference),
        cmocka_unit_test(sixteen_bit_sums_round_once),
        cmocka_unit_test(special_values_survive_in_every_build),
        cmocka_unit_test(integers_wrap_and_scaling_saturates),
        cmocka_unit_test(average_folds_into_the_factor_or_divides),
        cmocka_unit_test(what_cannot_be_reduced_has_no_kernel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
