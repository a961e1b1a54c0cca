/* SPDX-License-Identifier: Apache-2.0 */
/* What a process set is called: its id is a number, and how often it was given before.
 *
 *   bit 31 a pair (pair.h) | 19 bits times given before | 12 bits number
 *
 * The number is for people: as in Horovod, that of a removed set is given again, the
 * one that has been free for longest first. An id is used once in the life of a world,
 * so what still holds that of a removed set (a graph, a tensor on its way, a slot of
 * the response cache, the names that ranks have counted) never reaches another set. Ids
 * are given out by rank 0 (pending.c); a number that was given so often that its ids
 * are used up is not given any more. Pure. */
#ifndef RUNTIME_CORE_SET_ID_H
#define RUNTIME_CORE_SET_ID_H

#include "runtime/core/pair.h"

#define SET_NUMBERS 4096u /* HVD_PROCESS_SET_NUMBERS; the world's 0 included */

/* What people are told; a pair has no number and is its own. */
static inline uint32_t set_number(uint32_t id)
{
    return pair_is(id) ? id : id & (SET_NUMBERS - 1);
}

/* The id with which its number is given again. False: there is none left. */
static inline bool set_next_id(uint32_t id, uint32_t *ret)
{
    if (id >= PAIR_BIT - SET_NUMBERS)
        return false;
    *ret = id + SET_NUMBERS;
    return true;
}

#endif
