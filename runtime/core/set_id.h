/* SPDX-License-Identifier: Apache-2.0 */
/* The ids of process sets: a number, and how often the number was used before.
 *
 *   bit 31: a pair (pair.h) | 19 bits: times used before | 12 bits: number
 *
 * Users see the number. As in Horovod, the number of a removed set is used again, the
 * one that has been free for longest first. An id is used once in the life of a world,
 * so whatever still holds the id of a removed set (a graph, a tensor in flight, a slot
 * of the response cache) never reaches another set. Rank 0 assigns ids (pending_sets.c).
 * A number whose ids are used up is not assigned again. Pure. */
#ifndef RUNTIME_CORE_SET_ID_H
#define RUNTIME_CORE_SET_ID_H

#include "runtime/core/pair.h"

#define SET_NUMBERS 4096u /* HVD_PROCESS_SET_NUMBERS; the world's 0 included */

/* The number that users see. A pair has no number and is returned unchanged. */
static inline uint32_t set_number(uint32_t id)
{
    return pair_is(id) ? id : id & (SET_NUMBERS - 1);
}

/* The next id of the same number. False: none is left. */
static inline bool set_next_id(uint32_t id, uint32_t *ret)
{
    if (id >= PAIR_BIT - SET_NUMBERS)
        return false;
    *ret = id + SET_NUMBERS;
    return true;
}

#endif
