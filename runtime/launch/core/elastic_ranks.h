/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of the next world of an elastic job. Pure. */
#ifndef RUNTIME_LAUNCH_CORE_ELASTIC_RANKS_H
#define RUNTIME_LAUNCH_CORE_ELASTIC_RANKS_H

#include <stdint.h>

#define RANK_NONE UINT32_MAX

struct elastic_candidate { /* a process that is ready */
    uint32_t slot;
    uint32_t since; /* generation of its first world; 0: it was in none */
    uint32_t rank;  /* in the last world; RANK_NONE: it was not in that */
};

/* Chooses at most max of n candidates, the oldest, and sets members[rank] to their slots;
 * changes v. Returns how many. Rank 0 is the oldest process: it has been in worlds for
 * longest. Others keep their ranks if the world still has these; the rest fill the gaps
 * in the order of age, old rank, and slot. */
uint32_t
elastic_ranks(struct elastic_candidate *v, uint32_t n, uint32_t max, uint32_t *members);

#endif
