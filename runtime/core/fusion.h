/* SPDX-License-Identifier: Apache-2.0 */
/* Which ready tensors form one batch. Rank 0 decides and sends the result in the
 * answers, so that settings that differ between ranks cannot make them disagree.
 * Pure. */
#ifndef RUNTIME_CORE_FUSION_H
#define RUNTIME_CORE_FUSION_H

#include "runtime/core/message.h"

struct fusion_limit {
    uint64_t bytes;       /* of one batch; 0: fusion is off */
    bool is_groups_apart; /* a batch contains one group only */
};

/* Can it share a batch with other tensors? */
bool fusion_is_possible(const struct tensor_request *r);

/* The number of tensors of v[0..n) that form one batch: consecutive allreduces
 * (broadcasts, reduces, transfers) of one process set with equal dtype, operation,
 * scales, compression, root and registered buffer, at most limit->bytes together. 1 if
 * the first one cannot share a batch or exceeds the limit; 0 only for n == 0. The
 * result depends on nothing that differs between ranks. */
size_t fusion_take(const struct tensor_request *const *v,
                   size_t n,
                   const struct fusion_limit *limit);

#endif
