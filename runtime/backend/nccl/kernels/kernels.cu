/* SPDX-License-Identifier: Apache-2.0 */
/* All kernels: the one text that compile.py makes the image of, and the tests a
 * library for the CPU. */
#include "runtime/backend/nccl/kernels/kernel.h"

#include "runtime/backend/nccl/kernels/adasum.cu"
#include "runtime/backend/nccl/kernels/move.cu"
#include "runtime/backend/nccl/kernels/int8.cu"
#include "runtime/backend/nccl/kernels/feed.cu"
#include "runtime/backend/nccl/kernels/topk.cu"
#include "runtime/backend/nccl/kernels/power.cu"
#include "runtime/backend/nccl/kernels/scan.cu"
