/* SPDX-License-Identifier: Apache-2.0 */
/* All kernels: compile.py builds the image from this text, and the tests a library for
 * the CPU. */
#include "runtime/backend/nccl/kernels/kernel.h"

#include "runtime/backend/nccl/kernels/adasum.cu"
#include "runtime/backend/nccl/kernels/move.cu"
#include "runtime/backend/nccl/kernels/int8.cu"
#include "runtime/backend/nccl/kernels/feed.cu"
#include "runtime/backend/nccl/kernels/topk.cu"
#include "runtime/backend/nccl/kernels/power.cu"
#include "runtime/backend/nccl/kernels/scan.cu"
