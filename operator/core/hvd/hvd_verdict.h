/* SPDX-License-Identifier: Apache-2.0 */
/* The verdict on a job, from its stored status and the snapshot: its next state, its
 * counts and, after a failure, the first cause. Pure. */
#ifndef OPERATOR_CORE_HVD_HVD_VERDICT_H
#define OPERATOR_CORE_HVD_HVD_VERDICT_H

#include "operator/core/hvd/hvd_cause.h"
#include "operator/core/hvd/hvd_cycle.h"
#include "operator/core/hvd/hvd_stored.h"
#include "operator/core/why.h"

struct tally { /* number of pods of one role, by phase */
    uint32_t running, ready, succeeded, failed;
};

struct hvd_verdict {
    struct hvd_stored was; /* the stored status */
    enum hvd_cue cue;
    enum job_state state; /* the next state; it is stored before any action of it */
    bool was_finished;    /* the stored state is final */
    bool is_created;      /* every object of this generation was created */
    /* Values to store. workers: without spares. */
    uint32_t generation, workers, restarts, replacements, worker_replacements,
        launcher_replacements;
    struct index_set lost;      /* elastic: workers that have no new pod yet */
    bool is_launcher_lost;      /* elastic: nor has the launcher */
    struct hvd_retired retired; /* elastic */
    /* CUE_REPLACE: what was lost; else, and for what was not, NULL. */
    const char *replaced, *replaced_launcher;
    uint64_t next_restart_s; /* RESTARTING: wall time of the restart; 0: none */
    uint64_t settle_s;       /* wall time when a pending cause is final; 0: none */
    struct tally tally[ROLE_COUNT];
    struct index_set completed[ROLE_COUNT]; /* the pods that have succeeded */
    const char *reason, *message;           /* those of the state's condition */
    bool has_cause;                         /* cause is set, to be stored */
    struct cause cause;
    const char
        *scaled; /* CUE_RESIZE, CUE_SCALE, CUE_REMAKE: "scaled from 2 to 4 workers" */
    struct why why; /* why not all pods run: PENDING, or RUNNING of an elastic job */
};

struct verdict_query {
    const struct hvd_job *job;
    const struct observed *seen;
    const struct sync_outcome *outcome;
    const struct object_config *cfg;
    uint64_t now_wall_s;
};

/* -ENOMEM. */
int verdict_make(const struct verdict_query *q,
                 struct arena *a,
                 struct hvd_verdict *ret);

/* True if the status must be stored before any action. */
bool verdict_is_step(const struct hvd_verdict *v);

#endif
