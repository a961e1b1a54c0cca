/* SPDX-License-Identifier: Apache-2.0 */
/* All members exchange in shifts: at shift s each member sends to the s-th after it
 * and receives from the s-th before it.
 *
 * Invariant: the group follows from tensor and shift, which sender and receiver share,
 * and never from the number of calls that a member has made: parts without elements
 * make none, and each member has different ones of these. Called by gcoll_move.c. */
#include "runtime/backend/nccl/exchange.h"

struct gpu_exchange exchange_step(uint32_t n, uint32_t me, size_t item, uint32_t shift)
{
    const uint64_t step = (uint64_t)item * (n - 1) + (shift - 1);

    return (struct gpu_exchange){
        .to = (uint32_t)(((uint64_t)me + shift) % n),
        .from = (uint32_t)(((uint64_t)me + n - shift) % n),
        .group = step / EXCHANGE_GROUP,
    };
}
