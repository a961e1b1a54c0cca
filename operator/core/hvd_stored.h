/* SPDX-License-Identifier: Apache-2.0 */
/* The stored status of a HorovodJob: the only state that survives a restart of the
 * operator. Pure. */
#ifndef OPERATOR_CORE_HVD_STORED_H
#define OPERATOR_CORE_HVD_STORED_H

#include "operator/core/hvd_job.h"
#include "operator/core/state.h"

/* Of Running=False: the deletion was reported and may follow. */
#define TTL_REASON "TTLExpired"

struct hvd_stored {
    bool is_new; /* no status yet */
    enum job_state state;
    bool is_created;      /* condition Created */
    bool is_ttl_reported; /* Running=False with TTL_REASON */
    uint32_t generation;  /* of the world; 0: no pod was ever created */
    uint32_t workers;     /* of the world; 0: not stored */
    uint32_t restarts;    /* that counted */
    uint32_t replacements;
    uint64_t start_s, completion_s; /* wall; 0: none */
    uint64_t next_restart_s;        /* RESTARTING: when pods may be created; 0: none */
    uint64_t resize_s;              /* of the last resize in place; 0: none */
    uint64_t restarted_s;           /* other states: the last restart; 0: never */
};

void hvd_stored_read(const struct node *status, struct hvd_stored *ret);

/* After the spec was decoded: sets role[ROLE_WORKER].n and world_generation to those of
 * the world whose pods exist or will be created. The size of a refused spec is ignored:
 * spec_workers becomes that of the world. */
void hvd_stored_apply(struct hvd_job *job, bool is_refused);

#endif
