/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the ready tensors travel in one batch. Pure, decided by rank 0 alone and
 * told to the others in the responses, so that settings that differ by rank cannot
 * split a world. */
#ifndef RUNTIME_CORE_FUSION_H
#define RUNTIME_CORE_FUSION_H

#include "runtime/core/message.h"

/* How many of v[0..n) go in one batch: consecutive allreduces of equal dtype, operation
 * and scales, at most limit_bytes together. 1 when n >= 1 and the first travels alone
 * (it is larger than the limit, no allreduce, or limit_bytes is 0: fusion is off); 0
 * only for n == 0. */
size_t fusion_take(const struct request *const *v, size_t n, uint64_t limit_bytes);

#endif
