/* SPDX-License-Identifier: Apache-2.0 */
/* The stored status of a HorovodJob: the only state that survives a restart of the
 * operator. Pure. */
#ifndef OPERATOR_CORE_HVD_HVD_STORED_H
#define OPERATOR_CORE_HVD_HVD_STORED_H

#include "operator/core/hvd/hvd_job.h"
#include "operator/core/state.h"

/* Reason of Running=False: the deletion by TTL was reported, and may follow now. */
#define TTL_REASON "TTLExpired"

struct hvd_stored {
    bool is_new; /* no status yet */
    enum job_state state;
    bool is_created;       /* condition Created */
    bool is_ttl_reported;  /* Running=False with TTL_REASON */
    uint32_t generation;   /* generation of the world; 0: no pod was ever created */
    uint32_t workers;      /* number of workers in the world; 0: not stored */
    uint32_t restarts;     /* number of restarts that count towards backoffLimit */
    uint32_t replacements; /* number of restarts that do not count */
    uint32_t worker_replacements;   /* elastic: number of lost pods of workers */
    uint32_t launcher_replacements; /* elastic: number of launcher pods removed */
    bool is_launcher_lost;          /* elastic: the last of those has no new pod yet */
    struct index_set
        lost; /* elastic: workers whose loss is counted, and that have no new
                              pod yet */
    struct hvd_retired retired; /* elastic */
    /* Wall times; 0: none. */
    uint64_t start_s, completion_s;
    uint64_t next_restart_s; /* RESTARTING: pods may be created from then on */
    uint64_t suspended_s;    /* since then it is suspended */
    uint64_t resize_s;       /* the last resize in place */
    uint64_t restarted_s;    /* states other than RESTARTING: the last restart */
};

void hvd_stored_read(const struct node *status, struct hvd_stored *ret);

/* Call it after the spec was decoded. Sets role[ROLE_WORKER].n, world_generation and
 * the completed tasks to those of the world whose pods exist or will be created. The
 * size in a refused spec is ignored: spec_workers is set to the size of the world. */
void hvd_stored_apply(struct hvd_job *job, bool is_refused);

#endif
