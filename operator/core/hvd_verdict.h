/* SPDX-License-Identifier: Apache-2.0 */
/* What the observations say about a job: its state, counts and, when it failed, the
 * first cause. Pure. */
#ifndef OPERATOR_CORE_HVD_VERDICT_H
#define OPERATOR_CORE_HVD_VERDICT_H

#include "operator/core/hvd_job.h"
#include "operator/core/observed.h"
#include "operator/core/state.h"
#include "runtime/base/arena.h"

struct cause {        /* texts live in the arena or in the observed pods */
    int32_t rank;     /* -1: no rank is known */
    const char *pod;  /* "" if none */
    const char *node; /* "" if unknown */
    const char
        *reason; /* CamelCase: WorkerFailed, WorkerDeleted, OOMKilled, Evicted, ... */
    const char *message; /* one sentence */
    const char *output;  /* last lines of what failed, "" if unknown */
    bool has_exit;
    int exit_code, signal;
    uint64_t at_wall_us; /* 0: unknown */
};

struct verdict {
    enum job_state state;
    bool is_created; /* every object was made */
    bool
        was_finished; /* the stored status says so already; state never changes again */
    uint32_t running, ready, succeeded, failed; /* worker pods by phase */
    const char *reason, *message;               /* of the state's condition */
    bool has_cause;
    struct cause cause;
    const char *waiting; /* why the first worker that does not run does not; "" */
    const char *waiting_pod;
};

/* -ENOMEM when the arena is out. */
int verdict_make(const struct hvd_job *job,
                 const struct observed *seen,
                 const struct outcome *outcome,
                 struct arena *a,
                 struct verdict *ret);

#endif
