/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a HorovodJob as a state machine. Pure. */
#ifndef OPERATOR_CORE_HVD_HVD_CYCLE_H
#define OPERATOR_CORE_HVD_HVD_CYCLE_H

#include "operator/core/state.h"

/* What changes the state of a job. If several hold, the first of this list counts. */
enum hvd_cue {
    CUE_REFUSED, /* the spec or a pod is refused, and none was accepted before */
    CUE_DONE,    /* the job has succeeded, by successPolicy */
    CUE_DOOMED,  /* a failure that is not followed by a restart */
    CUE_SUSPEND, /* spec.runPolicy.suspend is true */
    CUE_EXPIRED, /* activeDeadlineSeconds have passed */
    CUE_BROKEN,  /* a failure that is followed by a restart */
    CUE_REMAKE,  /* the number of workers changes, with new pods */
    CUE_RESIZE,  /* the number of workers changes, in place */
    CUE_SCALE,   /* the same of an elastic job, whose ranks continue */
    CUE_REPLACE, /* an elastic job has lost pods, which are counted */
    CUE_RENEW,   /* a pod to create would have another runtime than the existing pods */
    CUE_CLEARED, /* no pod exists or is expected */
    CUE_RUN,     /* all pods run */
    CUE_NONE
};
#define CUE_COUNT 14
const char *hvd_cue_name(enum hvd_cue c); /* "done", ... */

/* The next state; `from` if there is no such edge. */
enum job_state hvd_next(enum job_state from, enum hvd_cue cue);
bool hvd_has_edge(enum job_state from, enum hvd_cue cue);

#endif
