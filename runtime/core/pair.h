/* SPDX-License-Identifier: Apache-2.0 */
/* A pair: a hidden process set of two ranks that send to and receive from each other.
 * Its number follows from the two ranks, so that both know it without a message. Pairs
 * use the upper half of the numbers; sets that a program creates count from 1. Pure.
 *
 * A transfer is one operation of a pair. Its name includes the direction, so that both
 * ranks may send under one name at the same time. */
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
/* The two ranks, the lower one first. ret[1] is PAIR_MAX_RANKS for an invalid
 * number. */
void pair_ranks(uint32_t pair, uint32_t ret[2]);
/* Is rank one of the two? False if set is not a pair. */
bool pair_has(uint32_t set, uint32_t rank);

/* Writes the name of a transfer: "grad (0 -> 1)". False: name is longer than
 * pair_name_max(src, dst) bytes. */
bool pair_name(const char *name, uint32_t src, uint32_t dst, char ret[TENSOR_NAME_MAX]);
size_t pair_name_max(uint32_t src, uint32_t dst);

/* A probe asks which rank sends to dst under a name; its own name is "grad (any -> 1)".
 * Writes that. False: as pair_name. */
bool pair_probe_name(const char *name, uint32_t dst, char ret[TENSOR_NAME_MAX]);
/* Is `sent` the name of a transfer from src to dst that this probe of dst asks for? */
bool pair_is_probed(const char *probe, const char *sent, uint32_t src, uint32_t dst);

#endif
