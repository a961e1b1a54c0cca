/* SPDX-License-Identifier: Apache-2.0 */
/* If NCCL's operation means the same as ours, it is used directly. The rest:
 *   AVERAGE   of floats ncclAvg; with scales a sum, and the share is part of the factor
 *             applied after it. Of integers a sum, divided toward zero (with a
 *             postscale: one multiplication, one rounding), as ../cpu/reduce.c does
 *   16 bits   integers are sent as int32, which NCCL has; cut back, they wrap as in C
 *   bool      normalised to 0 or 1 by the kernel in front; SUM is MAX, PRODUCT is MIN
 *   ADASUM    no NCCL operation; 16-bit floats are widened for it
 * Our kernels apply scales: one more object per communicator
 * (ncclRedOpCreatePreMulSum) would save a pass only in the rare case of one tensor
 * with a prescale.
 *
 * ncclAvg and bfloat16 came with 2.10, the oldest supported NCCL, so nothing depends
 * on its version. Called by gcoll_reduce.c and gcoll_adasum.c. */
#include "runtime/backend/nccl/dtype.h"

#include "runtime/backend/nccl/nccl_dl.h"

static const struct {
    int nccl;
    enum kernel_id same; /* t -> t */
    bool is_float;
} rows[DT_COUNT] = {
    [DT_U8] = {NCCL_U8, KERNEL_move_u8_u8, false},
    [DT_I8] = {NCCL_I8, KERNEL_move_i8_i8, false},
    [DT_U16] = {-1, KERNEL_move_u16_u16, false},
    [DT_I16] = {-1, KERNEL_move_i16_i16, false},
    [DT_I32] = {NCCL_I32, KERNEL_move_i32_i32, false},
    [DT_I64] = {NCCL_I64, KERNEL_move_i64_i64, false},
    [DT_F16] = {NCCL_F16, KERNEL_move_f16_f16, true},
    [DT_F32] = {NCCL_F32, KERNEL_move_f32_f32, true},
    [DT_F64] = {NCCL_F64, KERNEL_move_f64_f64, true},
    [DT_BOOL] = {NCCL_U8, KERNEL_move_bool_bool, false},
    [DT_BF16] = {NCCL_BF16, KERNEL_move_bf16_bf16, true},
};

static const struct {
    enum dtype a, b;
    enum kernel_id there, back;
} casts[] = {
    {DT_F32, DT_F16, KERNEL_move_f32_f16, KERNEL_move_f16_f32},
    {DT_F32, DT_BF16, KERNEL_move_f32_bf16, KERNEL_move_bf16_f32},
    {DT_F64, DT_F16, KERNEL_move_f64_f16, KERNEL_move_f16_f64},
    {DT_F64, DT_BF16, KERNEL_move_f64_bf16, KERNEL_move_bf16_f64},
    {DT_F16, DT_F32, KERNEL_move_f16_f32, KERNEL_move_f32_f16},
    {DT_BF16, DT_F32, KERNEL_move_bf16_f32, KERNEL_move_f32_bf16},
    {DT_U16, DT_I32, KERNEL_move_u16_i32, KERNEL_move_i32_u16},
    {DT_I16, DT_I32, KERNEL_move_i16_i32, KERNEL_move_i32_i16},
};

int nccl_dtype_of(enum dtype t)
{
    return (unsigned)t < DT_COUNT ? rows[t].nccl : -1;
}

bool dtype_casts(enum dtype a,
                 enum dtype b,
                 enum kernel_id *there,
                 enum kernel_id *back)
{
    for (size_t i = 0; i < sizeof(casts) / sizeof(casts[0]); i++)
        if (casts[i].a == a && casts[i].b == b) {
            *there = casts[i].there;
            *back = casts[i].back;
            return true;
        }
    return false;
}

static enum dtype wire_of(const struct gpu_reduction_request *a)
{
    if (a->dtype == DT_U16 || a->dtype == DT_I16)
        return DT_I32;
    if (a->op == OP_ADASUM && (a->dtype == DT_F16 || a->dtype == DT_BF16))
        return DT_F32;
    return a->op == OP_ADASUM ? a->dtype : a->wire;
}

static int nccl_op_of(const struct gpu_reduction_request *a)
{
    const bool is_bool = a->dtype == DT_BOOL;

    switch (a->op) {
    case OP_AVERAGE:
        return rows[a->dtype].is_float && a->prescale == 1.0 && a->postscale == 1.0
                   ? NCCL_AVG
                   : NCCL_SUM;
    case OP_SUM:
        return is_bool ? NCCL_MAX : NCCL_SUM;
    case OP_PRODUCT:
        return is_bool ? NCCL_MIN : NCCL_PROD;
    case OP_MIN:
        return NCCL_MIN;
    case OP_MAX:
        return NCCL_MAX;
    case OP_ADASUM:
    case OP_COUNT:
        break;
    }
    return REDUCTION_NO_NCCL;
}

static void choose_kernels(const struct gpu_reduction_request *a,
                           struct gpu_reduction *r)
{
    r->in = r->out = rows[a->dtype].same;
    r->needs_in = r->in_scale != 1.0 || a->dtype == DT_BOOL;
    r->needs_out = r->out_scale != 1.0 || r->out_divisor != 1;
    if (dtype_casts(a->dtype, r->wire, &r->in, &r->out))
        r->needs_in = r->needs_out = true;
    if (!r->needs_in)
        r->in = KERNEL_copy;
    if (!r->needs_out)
        r->out = KERNEL_copy;
}

void reduction_plan(const struct gpu_reduction_request *a, struct gpu_reduction *ret)
{
    struct gpu_reduction r = {
        .wire = wire_of(a),
        .nccl_op = nccl_op_of(a),
        .in_scale = a->prescale,
        .out_scale = a->postscale,
        .out_divisor = 1,
    };

    r.nccl_dtype = rows[r.wire].nccl;
    if (a->op == OP_AVERAGE && r.nccl_op == NCCL_SUM) {
        if (rows[a->dtype].is_float || a->postscale != 1.0)
            r.out_scale = a->postscale / a->n;
        else
            r.out_divisor = a->n;
    }
    choose_kernels(a, &r);
    *ret = r;
}
