/* SPDX-License-Identifier: Apache-2.0 */
/* A world of a part of the job's ranks: hvd_config.ranks. */
#ifndef RUNTIME_WORLD_PART_H
#define RUNTIME_WORLD_PART_H

#include "runtime/contract/contract.h"
#include "runtime/rendezvous/ranks.h"

struct world;
struct kept_state;

#define PART_KEY_BYTES 33

struct part_ranks { /* as in hvd_config; the caller's. n 0: all */
    int n;
    const int *v;
};
struct part {
    uint32_t *ranks; /* of the job, in this world's order; NULL: the world has all */
    uint32_t n;
    char key[PART_KEY_BYTES];
    char job_id[JOB_ID_MAX + PART_KEY_BYTES]; /* what its connections prove */
};
struct part_rounds { /* rounds that its server has seen of one part */
    char key[PART_KEY_BYTES];
    uint32_t n;
};

/* After world_find_place: w becomes a world of these ranks; its rank and size are those
 * within it. All ranks of the job in their order are not a part. -EINVAL, -ENOMEM. */
int part_choose(struct world *w, const struct part_ranks *ranks, struct err *err);
/* Local and cross rank among the members, from their hosts' names; members are known.
 */
int part_find_place(struct world *w, struct err *err);
/* Was the world made of these ranks? n 0: yes. */
bool part_has_ranks(const struct world *w, const struct part_ranks *ranks);
/* The counter of w's rounds; a later call may move it. NULL: out of memory. */
uint32_t *part_rounds(struct kept_state *m, const struct world *w);
void part_forget_rounds(struct kept_state *m); /* another server */
void part_release(struct part *p);

#endif
