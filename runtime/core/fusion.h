/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the ready tensors travel in one batch. Pure, decided by rank 0 alone and
 * told to the others in the responses, so that settings that differ by rank cannot
 * split a world. */
#ifndef RUNTIME_CORE_FUSION_H
#define RUNTIME_CORE_FUSION_H

#include "runtime/core/message.h"

struct fusion_limit {
    uint64_t bytes;       /* of one batch; 0: fusion is off */
    bool is_groups_apart; /* tensors of different groups do not travel together */
};

/* Does it ever travel with others? */
bool fusion_is_possible(const struct tensor_request *r);

/* How many of v[0..n) go in one batch: consecutive allreduces (broadcasts, reduces) of
 * one process set and of equal dtype, operation, scales, compression and root, at most
 * limit->bytes together. 1 when n >= 1 and the first travels alone (it is larger than
 * the limit, or of another kind); 0 only for n == 0. Depends on nothing that differs
 * between ranks.
 */
size_t fusion_take(const struct tensor_request *const *v,
                   size_t n,
                   const struct fusion_limit *limit);

#endif
