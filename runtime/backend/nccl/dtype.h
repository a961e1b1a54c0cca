/* SPDX-License-Identifier: Apache-2.0 */
/* How a reduction is composed of an NCCL operation and of our kernels before and after
 * it. Pure. */
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
    enum dtype wire;         /* type that is sent */
    int nccl_dtype, nccl_op; /* NCCL's numbers */
    /* dtype -> wire and wire -> dtype; KERNEL_copy, which counts bytes, if nothing is
     * computed. Each with these values in its struct args_move. */
    enum kernel_id in, out;
    double in_scale, out_scale;
    uint32_t out_divisor;
    /* The kernel is required even without packing. False: it is a copy, and may be
     * left out. */
    bool needs_in, needs_out;
};

/* For all that reduction_supported() allows; every supported NCCL (2.10) has it. */
void reduction_plan(const struct gpu_reduction_request *ask, struct gpu_reduction *ret);
/* The kernels that convert between two types, in both directions; false: none. */
bool dtype_casts(enum dtype a,
                 enum dtype b,
                 enum kernel_id *there,
                 enum kernel_id *back);
/* NCCL's number of an element type; -1: none. */
int nccl_dtype_of(enum dtype t);

#endif
