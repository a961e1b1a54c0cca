/* SPDX-License-Identifier: Apache-2.0 */
/* What the stored status says of a HorovodJob's life: the only memory that outlives the
 * operator. Pure. */
#ifndef OPERATOR_CORE_HVD_STORED_H
#define OPERATOR_CORE_HVD_STORED_H

#include "operator/core/hvd_job.h"
#include "operator/core/state.h"

#define TTL_REASON                                                                     \
    "TTLExpired" /* of Running=False: told, so that it may be deleted                  \
                  */

struct hvd_stored {
    bool is_new; /* no status yet */
    enum job_state state;
    bool is_created;     /* condition Created */
    bool is_ttl_told;    /* that it is to be deleted */
    uint32_t generation; /* of the world; 0: no pod was ever to be made */
    uint32_t workers;    /* of the world; 0: not said */
    uint32_t restarts;   /* that counted */
    uint32_t replacements;
    uint64_t start_s, completion_s; /* wall; 0: none */
    uint64_t next_restart_s;        /* RESTARTING: when pods may be made; 0: none */
    uint64_t resize_s;              /* of the last resize in place; 0: none */
    uint64_t restarted_s;           /* else: when it was last restarted; 0: never */
};

void hvd_stored_read(const struct node *status, struct hvd_stored *ret);

/* After the spec was decoded: makes role[ROLE_WORKER].n and world_generation those of
 * the world whose pods are there or are to be made. Of a spec that is refused the size
 * is not taken up: spec_workers stays as it was. */
void hvd_stored_apply(struct hvd_job *job, bool is_refused);

#endif
