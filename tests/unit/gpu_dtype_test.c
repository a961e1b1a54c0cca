/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of reductions: no conversion where none is needed. gpu_matrix_test checks the
 * values of every pair of operation and type. */
#include "runtime/backend/nccl/dtype.h"
#include "runtime/base/mem.h"
#include "tests/unit/unit.h"

static struct gpu_reduction
plan_of(enum dtype t, enum reduce_op op, double pre, double post)
{
    struct gpu_reduction_request a = {t, t, op, pre, post, 3};
    struct gpu_reduction r;

    reduction_plan(&a, &r);
    return r;
}

UNIT_TEST(one_call_is_enough_where_nccl_means_the_same)
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

UNIT_TEST(a_compressed_sum_is_cast_both_ways)
{
    struct gpu_reduction_request a = {DT_F64, DT_BF16, OP_AVERAGE, 1, 1, 4};
    struct gpu_reduction r;

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

UNIT_TEST(adasum_is_no_call_and_at_least_float32)
{
    struct gpu_reduction r = plan_of(DT_F16, OP_ADASUM, 1, 1);

    assert_int_equal(r.nccl_op, REDUCTION_NO_NCCL);
    assert_int_equal(r.wire, DT_F32);
    assert_int_equal(r.in, KERNEL_move_f16_f32);
    assert_int_equal(plan_of(DT_F64, OP_ADASUM, 1, 1).wire, DT_F64);
    assert_int_equal(plan_of(DT_F32, OP_ADASUM, 1, 1).in, KERNEL_copy);
}

UNIT_MAIN(NULL, NULL)
