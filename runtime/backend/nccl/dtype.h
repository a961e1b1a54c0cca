/* SPDX-License-Identifier: Apache-2.0 */
/* How one of our reductions is made of what NCCL can do and of kernels of ours before
 * and after it. Pure. */
#ifndef RUNTIME_BACKEND_NCCL_DTYPE_H
#define RUNTIME_BACKEND_NCCL_DTYPE_H

#include "runtime/backend/nccl/kernels/args.h"
#include "runtime/core/types.h"

#define REDUCTION_NO_NCCL (-1) /* ADASUM: by send and recv of wire elements */

struct gpu_reduction_request {
    enum dtype dtype; /* of the tensors */
    enum dtype wire;  /* DT_F16 or DT_BF16 of wider floats: compressed; else dtype */
    enum reduce_op op;
    double prescale, postscale;
    uint32_t n; /* members */
};

struct gpu_reduction {
    enum dtype wire;         /* what travels */
    int nccl_dtype, nccl_op; /* NCCL's numbers */
    /* dtype -> wire and wire -> dtype; KERNEL_copy, which counts bytes, where nothing
     * is computed. Each with these in its struct args_move. */
    enum kernel_id in, out;
    double in_scale, out_scale;
    uint32_t out_divisor;
    /* Also where no packing asks for one. False: it is a copy, and may be left out. */
    bool needs_in, needs_out;
};

/* Of what reduction_supported() allows; every NCCL that is taken (2.10) has it all. */
void reduction_plan(const struct gpu_reduction_request *ask, struct gpu_reduction *ret);
/* The kernels between two types, there and back; false: there are none. */
bool dtype_casts(enum dtype a,
                 enum dtype b,
                 enum kernel_id *there,
                 enum kernel_id *back);
/* NCCL's number of an element type, -1: it has none. */
int nccl_dtype_of(enum dtype t);

#endif
