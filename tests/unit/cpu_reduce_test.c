/* SPDX-License-Identifier: Apache-2.0 */
/* Reduction kernels and 16-bit conversions against a scalar reference in double, for
 * both builds. */
#include <math.h>

#include "tests/unit/unit.h"

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

UNIT_TEST(widening_is_exact_for_every_value)
{
    for (uint32_t h = 0; h < 65536; h++) {
        double a = f16_value((uint16_t)h), b = bf16_value((uint16_t)h);
        float fa = f32_of_f16((uint16_t)h), fb = f32_of_bf16((uint16_t)h);
        assert_true(isnan(a) ? isnan(fa)
                             : (double)fa == a && !signbit(fa) == !signbit(a));
        assert_true(isnan(b) ? isnan(fb)
                             : (double)fb == b && !signbit(fb) == !signbit(b));
    }
}

UNIT_TEST(narrowing_undoes_widening)
{
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

UNIT_TEST(narrowing_rounds_to_nearest_even)
{
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

/* --- kernels --- */

static bool is_float(enum dtype t)
{
    return t == DT_F16 || t == DT_BF16 || t == DT_F32 || t == DT_F64;
}

static double element_load(enum dtype t, const void *p, size_t i)
{
    if (t == DT_F16)
        return f16_value(((const uint16_t *)p)[i]);
    if (t == DT_BF16)
        return bf16_value(((const uint16_t *)p)[i]);
    return t == DT_F32 ? (double)((const float *)p)[i] : ((const double *)p)[i];
}

static void element_store(enum dtype t, void *p, size_t i, double x)
{
    if (t == DT_F16)
        ((uint16_t *)p)[i] = narrow_reference(x, f16_value, 0x7c00);
    else if (t == DT_BF16)
        ((uint16_t *)p)[i] = narrow_reference(x, bf16_value, 0x7f80);
    else if (t == DT_F32)
        ((float *)p)[i] = (float)x;
    else
        ((double *)p)[i] = x;
}

static int64_t load_int(enum dtype t, const void *p, size_t i)
{
    switch ((int)t) {
    case DT_U8:
    case DT_BOOL:
        return ((const uint8_t *)p)[i];
    case DT_I8:
        return ((const int8_t *)p)[i];
    case DT_U16:
        return ((const uint16_t *)p)[i];
    case DT_I16:
        return ((const int16_t *)p)[i];
    case DT_I32:
        return ((const int32_t *)p)[i];
    case DT_I64:
        return ((const int64_t *)p)[i];
    default:
        fail();
        return 0;
    }
}

/* Keeps the low bits, as the type does. */
static void store_int(enum dtype t, void *p, size_t i, int64_t x)
{
    size_t es = dtype_size(t);
    memcpy((uint8_t *)p + i * es, &x, es); /* little endian, as every build of ours */
}

enum { MAX_SRC = 5, MAX_N = 2500 };

/* Small multiples of 1/8, whose sums and products of five are exact in float32. */
static double float_input(size_t k, size_t i)
{
    return (double)((int)(i * 7 + k * 3) % 11 - 5) / 8;
}

/* All bits of the type take part, so that sums and products wrap. */
static int64_t int_input(enum dtype t, size_t k, size_t i)
{
    uint64_t x = (i * 5 + k + 1) * 0x9e3779b97f4a7c15ull;
    if (t == DT_BOOL) /* true is any value but 0 */
        return x >> 61 ? 0 : (int64_t)(x >> 50 & 0x7f) + 1;
    return (int64_t)(x ^ x >> 29);
}

static double float_fold(enum reduce_op op, double a, double b)
{
    return op == OP_MIN       ? fmin(a, b)
           : op == OP_MAX     ? fmax(a, b)
           : op == OP_PRODUCT ? a * b
                              : a + b;
}

static int64_t int_fold(enum reduce_op op, int64_t a, int64_t b)
{
    if (op == OP_MIN || op == OP_MAX)
        return (op == OP_MIN) == (a < b) ? a : b;
    return (int64_t)(op == OP_PRODUCT ? (uint64_t)a * (uint64_t)b
                                      : (uint64_t)a + (uint64_t)b);
}

static bool bool_fold(enum reduce_op op, bool a, bool b)
{
    return op == OP_SUM || op == OP_MAX ? a || b : a && b;
}

static int64_t value_saturate(enum dtype t, long double x)
{
    long double top = t == DT_U8    ? UINT8_MAX
                      : t == DT_U16 ? UINT16_MAX
                      : t == DT_I8  ? INT8_MAX
                      : t == DT_I16 ? INT16_MAX
                      : t == DT_I32 ? INT32_MAX
                                    : INT64_MAX;
    long double low = t == DT_U8 || t == DT_U16 ? 0 : -top - 1;
    x = truncl(x);
    return (int64_t)(x > top ? top : x < low ? low : x);
}

/* What element i of the result is, into ref. */
static void sum_expect(enum reduce_op op,
                       enum dtype t,
                       uint8_t *const *src,
                       size_t n_src,
                       size_t i,
                       struct finish f,
                       uint8_t *ref)
{
    if (is_float(t)) {
        double want = element_load(t, src[0], i);
        for (size_t s = 1; s < n_src; s++)
            want = float_fold(op, want, element_load(t, src[s], i));
        element_store(t, ref, 0, want * f.factor);
        return;
    }
    int64_t x = load_int(t, src[0], i);
    for (size_t s = 1; s < n_src; s++) {
        int64_t y = load_int(t, src[s], i);
        x = t == DT_BOOL ? bool_fold(op, x != 0, y != 0) : int_fold(op, x, y);
        store_int(t, ref, 0, x);
        x = load_int(t, ref, 0);
    }
    if (t == DT_BOOL)
        x = x != 0 && f.factor != 0;
    else
        x /= (int64_t)f.divisor;
    if (f.factor != 1.0 && t != DT_BOOL) /* the product is a double, as in the kernel */
        x = value_saturate(t, (long double)((double)x * f.factor));
    store_int(t, ref, 0, x);
}

static void check_fold(
    enum reduce_op op, enum dtype t, bool wide, size_t n_src, size_t n, struct finish f)
{
    const struct reduce_kernel *k = kernel_for(op, t, wide);
    size_t es = dtype_size(t);
    uint8_t *src[MAX_SRC], *dst = malloc(n * es + 1), *dst2 = malloc(n * es + 1);
    assert_non_null(k);
    assert_int_equal(k->elem_bytes, es);
    for (size_t s = 0; s < n_src; s++) {
        src[s] = malloc(n * es + 1);
        for (size_t i = 0; i < n; i++)
            if (is_float(t))
                element_store(t, src[s], i, float_input(s, i));
            else
                store_int(t, src[s], i, int_input(t, s, i));
    }
    dst[n * es] = dst2[n * es] = 0x5a;
    k->fold(dst, dst2, (const void *const *)src, n_src, n, &f);
    for (size_t i = 0; i < n; i++) {
        uint8_t ref[8];
        sum_expect(op, t, src, n_src, i, f, ref);
        if (is_float(t) ? element_load(t, dst, i) != element_load(t, ref, 0)
                        : memcmp(dst + i * es, ref, es) != 0)
            fail_msg("%s %s wide=%d src=%zu n=%zu factor=%g divisor=%d: [%zu] is wrong",
                     reduce_op_name(op), dtype_name(t), wide, n_src, n, f.factor,
                     (int)f.divisor, i);
    }
    assert_memory_equal(dst, dst2, n * es + 1);
    /* in place over any source gives the same */
    k->fold(src[n_src - 1], NULL, (const void *const *)src, n_src, n, &f);
    assert_memory_equal(src[n_src - 1], dst, n * es);
    for (size_t s = 0; s < n_src; s++)
        free(src[s]);
    free(dst);
    free(dst2);
}

UNIT_TEST(every_pair_matches_the_reference)
{
    static const size_t counts[] = {0, 1, 7, 8, 9, 1023, 1024, 1025, 2500};
    static const struct finish scales[] = {{1, 1}, {0.5, 1}, {-3, 1}, {0, 1}};
    static const struct finish averages[] = {{1, 3}, {2.5, 7}};
    for (int op = 0; op < OP_COUNT; op++)
        for (int t = 0; t < DT_COUNT; t++)
            for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++)
                for (size_t n_src = 1; n_src <= MAX_SRC; n_src++)
                    for (int wide = 0; wide <= kernel_has_wide(); wide++) {
                        if (op == OP_ADASUM || !reduction_supported(op, t))
                            continue;
                        for (size_t i = 0; i < 4; i++)
                            check_fold(op, t, wide, n_src, counts[c], scales[i]);
                        for (size_t i = 0; i < 2 && op == OP_AVERAGE; i++)
                            if (!is_float(t))
                                check_fold(op, t, wide, n_src, counts[c], averages[i]);
                    }
}

/* As numpy.minimum: a NaN anywhere is the result, whatever stands beside it. */
UNIT_TEST(nan_survives_min_and_max)
{
    static const enum dtype types[] = {DT_F16, DT_BF16, DT_F32, DT_F64};
    enum { N = 19 };
    for (int wide = 0; wide <= kernel_has_wide(); wide++)
        for (size_t d = 0; d < 4; d++)
            for (int op = OP_MIN; op <= OP_MAX; op++)
                for (size_t at = 0; at < 3; at++) {
                    enum dtype t = types[d];
                    double src[3][N] = {{0}}, out[N];
                    struct finish f = FINISH_NONE;
                    for (size_t s = 0; s < 3; s++)
                        for (size_t i = 0; i < N; i++)
                            element_store(t, src[s], i, i % 2 ? (double)s : INFINITY);
                    for (size_t i = 0; i < N; i++) /* a NaN by its bits */
                        if (t == DT_F16)
                            ((uint16_t *)src[at])[i] = 0x7e01;
                        else if (t == DT_BF16)
                            ((uint16_t *)src[at])[i] = 0xffc1;
                        else
                            element_store(t, src[at], i, (double)NAN);
                    const void *p[] = {src[0], src[1], src[2]};
                    kernel_for(op, t, wide)->fold(out, NULL, p, 3, N, &f);
                    for (size_t i = 0; i < N; i++)
                        assert_true(isnan(element_load(t, out, i)));
                }
}

UNIT_TEST(sixteen_bit_sums_round_once)
{
    /* 2048 + 1 + 1: rounding after each step would give 2048, float32 in between gives
     * 2050 */
    uint16_t a = f16_of_f32(2048), b = f16_of_f32(1), r;
    const void *src[] = {&a, &b, &b};
    struct finish f = FINISH_NONE;
    for (int wide = 0; wide <= kernel_has_wide(); wide++) {
        kernel_for(OP_SUM, DT_F16, wide)->fold(&r, NULL, src, 3, 1, &f);
        assert_true(f32_of_f16(r) == 2050);
    }
    a = bf16_of_f32(256), b = bf16_of_f32(1);
    for (int wide = 0; wide <= kernel_has_wide(); wide++) {
        kernel_for(OP_SUM, DT_BF16, wide)->fold(&r, NULL, src, 3, 1, &f);
        assert_true(f32_of_bf16(r) == 258);
    }
}

UNIT_TEST(special_values_survive_in_every_build)
{
    enum { N = 65536 };
    uint16_t *v = malloc(N * 2), *w = malloc(N * 2), *out = malloc(N * 2);
    const void *src[] = {v};
    struct finish f = FINISH_NONE;
    for (uint32_t i = 0; i < N; i++)
        v[i] = (uint16_t)i;
    for (int wide = 0; wide <= kernel_has_wide(); wide++) {
        kernel_for(OP_SUM, DT_F16, wide)->fold(out, NULL, src, 1, N, &f);
        for (uint32_t i = 0; i < N; i++)
            assert_true(isnan(f16_value(v[i])) ? isnan(f16_value(out[i]))
                                               : out[i] == v[i]);
        kernel_for(OP_SUM, DT_BF16, wide)->fold(w, NULL, src, 1, N, &f);
        for (uint32_t i = 0; i < N; i++)
            assert_true(isnan(bf16_value(v[i])) ? isnan(bf16_value(w[i]))
                                                : w[i] == v[i]);
    }
    free(v);
    free(w);
    free(out);
}

UNIT_TEST(average_folds_into_the_factor_or_divides)
{
    struct finish f = finish_of(DT_F32, OP_AVERAGE, 3.0, 4);
    assert_true(f.factor == 0.75 && f.divisor == 1);
    f = finish_of(DT_I64, OP_AVERAGE, 1.0, 4);
    assert_true(f.factor == 1.0 && f.divisor == 4);
    f = finish_of(DT_I32, OP_AVERAGE, 3.0, 4);
    assert_true(f.factor == 0.75 && f.divisor == 1);
    f = finish_of(DT_F16, OP_SUM, 2.0, 4);
    assert_true(f.factor == 2.0 && f.divisor == 1);
}

UNIT_TEST(unsupported_pairs_have_no_kernel)
{
    assert_null(kernel_for(OP_AVERAGE, DT_BOOL, false));
    assert_null(kernel_for(OP_ADASUM, DT_F32, false));
    assert_null(kernel_for(OP_SUM, (enum dtype)99, false));
    assert_null(kernel_for((enum reduce_op)99, DT_F32, false));
}

UNIT_TEST(predicate_matches_every_pair)
{
    for (int op = 0; op < OP_COUNT; op++)
        for (int t = 0; t < DT_COUNT; t++) {
            bool want = op == OP_ADASUM    ? is_float(t)
                        : op == OP_AVERAGE ? t != DT_BOOL
                                           : true;
            assert_int_equal(reduction_supported(op, t), want);
        }
    assert_false(reduction_supported(OP_COUNT, DT_F32));
    assert_false(reduction_supported(OP_SUM, DT_COUNT));
    assert_false(reduction_supported((enum reduce_op) - 1, DT_F32));
}

UNIT_MAIN(NULL, NULL)
