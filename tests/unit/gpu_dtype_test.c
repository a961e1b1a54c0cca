/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of reductions: rows of a table, and every pair of operation and type carried
 * out as planned, by plain loops, against the cpu backend's kernels. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/backend/cpu/reduce.h"
#include "runtime/backend/nccl/dtype.h"
#include "runtime/base/mem.h"
#include "runtime/core/half.h"
#include "tests/unit/seeded.h"

static struct gpu_reduction
plan_of(enum dtype t, enum reduce_op op, double pre, double post)
{
    struct gpu_reduction_request a = {t, t, op, pre, post, 3};
    struct gpu_reduction r;

    reduction_plan(&a, &r);
    return r;
}

static void one_call_is_enough_where_nccl_means_the_same(void **state)
{
    static const struct {
        enum dtype t;
        enum reduce_op op;
        int nccl_dtype, nccl_op;
    } rows[] = {
        {DT_F32, OP_SUM, 7, 0},     {DT_F32, OP_AVERAGE, 7, 4}, {DT_F64, OP_MIN, 8, 3},
        {DT_F16, OP_AVERAGE, 6, 4}, {DT_BF16, OP_MAX, 9, 2},    {DT_I8, OP_SUM, 0, 0},
        {DT_U8, OP_PRODUCT, 1, 1},  {DT_I32, OP_MIN, 2, 3},     {DT_I64, OP_MAX, 4, 2},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct gpu_reduction r = plan_of(rows[i].t, rows[i].op, 1, 1);

        assert_int_equal(r.nccl_dtype, rows[i].nccl_dtype);
        assert_int_equal(r.nccl_op, rows[i].nccl_op);
        assert_int_equal(r.wire, rows[i].t);
        assert_false(r.needs_in || r.needs_out);
        assert_int_equal(r.in, KERNEL_copy);
        assert_int_equal(r.out, KERNEL_copy);
    }
}

static void a_compressed_sum_is_cast_both_ways(void **state)
{
    struct gpu_reduction_request a = {DT_F64, DT_BF16, OP_AVERAGE, 1, 1, 4};
    struct gpu_reduction r;

    (void)state;
    reduction_plan(&a, &r);
    assert_int_equal(r.wire, DT_BF16);
    assert_int_equal(r.nccl_dtype, 9);
    assert_int_equal(r.nccl_op, 4);
    assert_int_equal(r.in, KERNEL_move_f64_bf16);
    assert_int_equal(r.out, KERNEL_move_bf16_f64);
    assert_true(r.needs_in && r.needs_out);
    a = (struct gpu_reduction_request){DT_F32, DT_F16, OP_AVERAGE, 2, 3, 4};
    reduction_plan(&a, &r);
    assert_int_equal(r.in, KERNEL_move_f32_f16);
    assert_int_equal(r.nccl_op, 0);
    assert_float_equal(r.in_scale, 2, 0);
    assert_float_equal(r.out_scale, 0.75, 0);
}

static void adasum_is_no_call_and_at_least_float32(void **state)
{
    struct gpu_reduction r = plan_of(DT_F16, OP_ADASUM, 1, 1);

    (void)state;
    assert_int_equal(r.nccl_op, REDUCTION_NO_NCCL);
    assert_int_equal(r.wire, DT_F32);
    assert_int_equal(r.in, KERNEL_move_f16_f32);
    assert_int_equal(plan_of(DT_F64, OP_ADASUM, 1, 1).wire, DT_F64);
    assert_int_equal(plan_of(DT_F32, OP_ADASUM, 1, 1).in, KERNEL_copy);
}

static void numbers_of_types(void **state)
{
    static const int want[DT_COUNT] = {1, 0, -1, -1, 2, 4, 6, 7, 8, 1, 9};

    (void)state;
    for (int t = 0; t < DT_COUNT; t++)
        assert_int_equal(nccl_dtype_of((enum dtype)t), want[t]);
    assert_int_equal(nccl_dtype_of(DT_COUNT), -1);
}

/* --- carried out --- */

enum { N_MEMBERS = 3, N_ELEMENTS = 64 };

static bool is_float(enum dtype t)
{
    return t == DT_F16 || t == DT_BF16 || t == DT_F32 || t == DT_F64;
}

static double value_load(enum dtype t, const void *p, size_t i, int64_t *ret_int)
{
    int64_t v = 0;
    double f = 0;

    switch (t) {
    case DT_U8:
    case DT_BOOL:
        v = ((const uint8_t *)p)[i];
        break;
    case DT_I8:
        v = ((const int8_t *)p)[i];
        break;
    case DT_U16:
        v = ((const uint16_t *)p)[i];
        break;
    case DT_I16:
        v = ((const int16_t *)p)[i];
        break;
    case DT_I32:
        v = ((const int32_t *)p)[i];
        break;
    case DT_I64:
        v = ((const int64_t *)p)[i];
        break;
    case DT_F16:
        f = (double)f32_of_f16(((const uint16_t *)p)[i]);
        break;
    case DT_BF16:
        f = (double)f32_of_bf16(((const uint16_t *)p)[i]);
        break;
    case DT_F32:
        f = (double)((const float *)p)[i];
        break;
    case DT_F64:
        f = ((const double *)p)[i];
        break;
    case DT_COUNT:
        break;
    }
    *ret_int = v;
    return is_float(t) ? f : (double)v;
}

/* Integers wrap to t. */
static void value_store(enum dtype t, void *p, size_t i, double f, int64_t v)
{
    switch (t) {
    case DT_U8:
    case DT_BOOL:
        ((uint8_t *)p)[i] = (uint8_t)v;
        break;
    case DT_I8:
        ((int8_t *)p)[i] = (int8_t)v;
        break;
    case DT_U16:
        ((uint16_t *)p)[i] = (uint16_t)v;
        break;
    case DT_I16:
        ((int16_t *)p)[i] = (int16_t)v;
        break;
    case DT_I32:
        ((int32_t *)p)[i] = (int32_t)v;
        break;
    case DT_I64:
        ((int64_t *)p)[i] = v;
        break;
    case DT_F16:
        ((uint16_t *)p)[i] = f16_of_f32((float)f);
        break;
    case DT_BF16:
        ((uint16_t *)p)[i] = bf16_of_f32((float)f);
        break;
    case DT_F32:
        ((float *)p)[i] = (float)f;
        break;
    case DT_F64:
        ((double *)p)[i] = f;
        break;
    case DT_COUNT:
        break;
    }
}

static int64_t int_saturate(enum dtype t, double f)
{
    static const double lo[DT_COUNT] = {
        [DT_I8] = -0x1p7, [DT_I16] = -0x1p15, [DT_I32] = -0x1p31, [DT_I64] = -0x1p63};
    static const double hi[DT_COUNT] = {
        [DT_U8] = 0xff,    [DT_I8] = 0x7f,        [DT_U16] = 0xffff,
        [DT_I16] = 0x7fff, [DT_I32] = 0x7fffffff, [DT_I64] = 0x1p63,
    };

    if (f >= hi[t])
        return t == DT_I64 ? INT64_MAX : (int64_t)hi[t];
    return f <= lo[t] ? (t == DT_I64 ? INT64_MIN : (int64_t)lo[t]) : (int64_t)f;
}

/* What a kernel does, as args.h says. narrow: the type whose words it means. */
static void values_move(enum dtype from,
                        enum dtype to,
                        const void *src,
                        void *dst,
                        double scale,
                        uint32_t divisor)
{
    enum dtype narrow = dtype_size(from) < dtype_size(to) ? from : to;

    for (size_t i = 0; i < N_ELEMENTS; i++) {
        uint64_t word[1];
        int64_t v;
        double f = value_load(from, src, i, &v);

        if (narrow == DT_BOOL) {
            value_store(to, dst, i, 0, v != 0 && scale != 0.0);
            continue;
        }
        if (!is_float(from)) {
            value_store(narrow, word, 0, 0, v);
            (void)value_load(narrow, word, 0, &v);
            v /= (int64_t)divisor;
            if (scale != 1.0)
                v = int_saturate(narrow, (double)v * scale);
        }
        value_store(to, dst, i, f * scale, v);
    }
}

static void
nccl_reduce_model(const struct gpu_reduction *r, uint64_t (*buf)[N_ELEMENTS], void *out)
{
    for (size_t i = 0; i < N_ELEMENTS; i++) {
        int64_t v;
        double f = value_load(r->wire, buf[0], i, &v);

        for (int m = 1; m < N_MEMBERS; m++) {
            int64_t w;
            double g = value_load(r->wire, buf[m], i, &w);

            switch (r->nccl_op) {
            case 0:
            case 4:
                f += g, v = (int64_t)((uint64_t)v + (uint64_t)w);
                break;
            case 1:
                f *= g, v = (int64_t)((uint64_t)v * (uint64_t)w);
                break;
            case 2:
                f = g > f ? g : f, v = w > v ? w : v;
                break;
            case 3:
                f = g < f ? g : f, v = w < v ? w : v;
                break;
            default:
                fail();
            }
        }
        value_store(r->wire, out, i, r->nccl_op == 4 ? f / N_MEMBERS : f, v);
    }
}

static void values_fill(enum dtype t, struct seeded *rnd, void *p)
{
    for (size_t i = 0; i < N_ELEMENTS; i++)
        if (is_float(t))
            value_store(t, p, i, (double)seeded_below(rnd, 64) / 8 - 4, 0);
        else
            value_store(t, p, i, 0,
                        (int64_t)(seeded_next(rnd) >> seeded_below(rnd, 64)));
}

static void check_reduction(
    enum dtype t, enum reduce_op op, double pre, double post, struct seeded *rnd)
{
    uint64_t in[N_MEMBERS][N_ELEMENTS], wire[N_MEMBERS][N_ELEMENTS], sum[N_ELEMENTS];
    uint64_t scaled[N_MEMBERS][N_ELEMENTS], want[N_ELEMENTS], got[N_ELEMENTS];
    const void *src[N_MEMBERS];
    const struct reduce_kernel *k = kernel_for(op, t, false);
    const struct finish first = {pre, 1};
    const struct finish last = finish_of(t, op, post, N_MEMBERS);
    struct gpu_reduction r = plan_of(t, op, pre, post);

    for (int m = 0; m < N_MEMBERS; m++) {
        const void *one = in[m];

        values_fill(t, rnd, in[m]);
        kernel_for(OP_SUM, t, false)
            ->fold(scaled[m], NULL, &one, 1, N_ELEMENTS, &first);
        src[m] = scaled[m];
        values_move(t, r.wire, in[m], wire[m], r.in_scale, 1);
    }
    k->fold(want, NULL, src, N_MEMBERS, N_ELEMENTS, &last);
    nccl_reduce_model(&r, wire, sum);
    values_move(r.wire, t, sum, got, r.out_scale, r.out_divisor);
    for (size_t i = 0; i < N_ELEMENTS; i++) {
        int64_t a, b;
        double x = value_load(t, want, i, &a), y = value_load(t, got, i, &b);
        bool is_same = is_float(t) ? fabs(x - y) <= 0.02 * (1 + fabs(x)) : a == b;

        if (!is_same)
            print_error("%s %s %g %g [%zu]: %.9g (%lld), not %.9g (%lld)\n",
                        reduce_op_name(op), dtype_name(t), pre, post, i, y,
                        (long long)b, x, (long long)a);
        assert_true(is_same);
    }
}

static void carried_out_it_is_the_cpus_result(void **state)
{
    static const double scales[] = {1, 0.5, 3, -2, 0};
    struct seeded rnd = {77};

    (void)state;
    for (int t = 0; t < DT_COUNT; t++)
        for (int op = 0; op < OP_COUNT; op++) {
            if (op == OP_ADASUM
                || !reduction_supported((enum reduce_op)op, (enum dtype)t))
                continue;
            for (size_t i = 0; i < ARRAY_LEN(scales); i++)
                for (size_t k = 0; k < ARRAY_LEN(scales); k++)
                    check_reduction((enum dtype)t, (enum reduce_op)op, scales[i],
                                    scales[k], &rnd);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_call_is_enough_where_nccl_means_the_same),
        cmocka_unit_test(a_compressed_sum_is_cast_both_ways),
        cmocka_unit_test(adasum_is_no_call_and_at_least_float32),
        cmocka_unit_test(numbers_of_types),
        cmocka_unit_test(carried_out_it_is_the_cpus_result),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
