/* SPDX-License-Identifier: Apache-2.0 */
/* Two ranks that send to and receive from each other: a process set that needs no
 * asking. Its number follows from the two ranks, so that both know it before anybody
 * has told it, and it has its own half of the numbers: sets that a program makes count
 * from 1. Pure.
 *
 * A transfer is one operation of a pair; its name tells the direction, so that both
 * ranks may send under one name at once. */
#ifndef RUNTIME_CORE_PAIR_H
#define RUNTIME_CORE_PAIR_H

#include "runtime/core/types.h"

#define PAIR_BIT       0x80000000u
#define PAIR_MAX_RANKS 65536u /* ranks below this one can be in a pair */

/* Does this number of a process set mean a pair? */
static inline bool pair_is(uint32_t set)
{
    return (set & PAIR_BIT) != 0;
}
/* The pair of two different ranks below PAIR_MAX_RANKS, in either order. */
uint32_t pair_of(uint32_t a, uint32_t b);
/* Its ranks, the lower one first; ret[1] is PAIR_MAX_RANKS for a number that is no
 * pair's. */
void pair_ranks(uint32_t pair, uint32_t ret[2]);
/* False too when set is no pair. */
bool pair_has(uint32_t set, uint32_t rank);

/* What a transfer of this name is called: "grad (0 -> 1)". False: name is longer than
 * pair_name_max(src, dst) bytes. */
bool pair_name(const char *name, uint32_t src, uint32_t dst, char ret[TENSOR_NAME_MAX]);
size_t pair_name_max(uint32_t src, uint32_t dst);

#endif
