/* SPDX-License-Identifier: Apache-2.0 */
/* Pairs the sends and receives of a member, and assigns them to groups of NCCL calls.
 * Pure. */
#ifndef RUNTIME_BACKEND_NCCL_EXCHANGE_H
#define RUNTIME_BACKEND_NCCL_EXCHANGE_H

#include <stddef.h>
#include <stdint.h>

#define EXCHANGE_GROUP 1024u /* pairs of calls in one group */

struct gpu_exchange {
    uint32_t to, from; /* members */
    uint64_t group;    /* ascends with (item, shift) */
};

/* Of the item-th tensor between n members, n > 1: the exchange with the member `shift`
 * places on, 1 to n - 1. The send of a member and the matching receive have the same
 * group. */
struct gpu_exchange exchange_step(uint32_t n, uint32_t me, size_t item, uint32_t shift);

#endif
