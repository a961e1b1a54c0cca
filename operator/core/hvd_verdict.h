/* SPDX-License-Identifier: Apache-2.0 */
/* The verdict on a job by its stored status and the observations: its next state,
 * counts and, when something failed, the first cause. Pure. */
#ifndef OPERATOR_CORE_HVD_VERDICT_H
#define OPERATOR_CORE_HVD_VERDICT_H

#include "operator/core/hvd_cause.h"
#include "operator/core/hvd_cycle.h"
#include "operator/core/hvd_stored.h"

struct tally { /* pods of one role, by phase */
    uint32_t running, ready, succeeded, failed;
};

struct hvd_verdict {
    struct hvd_stored was;
    enum hvd_cue cue;
    enum job_state state; /* the next one; stored before anything is done in it */
    bool was_finished;    /* the state never changes again */
    bool is_created;      /* every object of this generation was created */
    uint32_t generation, workers, restarts, replacements; /* to be stored */
    uint64_t next_restart_s;                              /* RESTARTING; 0: none */
    uint64_t settle_s; /* when a pending cause becomes final; 0: none */
    struct tally tally[ROLE_COUNT];
    const char *reason, *message; /* of the state's condition */
    bool has_cause;               /* to be stored */
    struct cause cause;
    const char *scaled;  /* RESIZE, REMAKE: "scaled from 2 to 4 workers" */
    const char *waiting; /* why the first pod that is not running waits; "" */
};

struct verdict_query {
    const struct hvd_job *job;
    const struct observed *seen;
    const struct sync_outcome *outcome;
    const struct object_config *cfg;
    uint64_t now_wall_s;
};

/* -ENOMEM when the arena is out. */
int verdict_make(const struct verdict_query *q,
                 struct arena *a,
                 struct hvd_verdict *ret);

/* True if the status must be stored before any action. */
bool verdict_is_step(const struct hvd_verdict *v);

#endif
