/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a HorovodJob as a state machine. Pure. */
#ifndef OPERATOR_CORE_HVD_CYCLE_H
#define OPERATOR_CORE_HVD_CYCLE_H

#include "operator/core/state.h"

/* What changes the state of a job. If several hold, the first of this list counts. */
enum hvd_cue {
    CUE_REFUSED, /* the spec or a pod is refused and was never accepted */
    CUE_DONE,    /* by successPolicy */
    CUE_DOOMED,  /* a failure without a restart */
    CUE_SUSPEND, /* spec.runPolicy.suspend is true */
    CUE_EXPIRED, /* activeDeadlineSeconds are over */
    CUE_BROKEN,  /* a failure with a restart */
    CUE_REMAKE,  /* another number of workers, with new pods */
    CUE_RESIZE,  /* another number of workers, in place */
    CUE_RENEW,   /* a missing pod would have another runtime than the existing ones */
    CUE_CLEARED, /* no pod is left or expected */
    CUE_RUN,     /* all pods run */
    CUE_NONE
};
#define CUE_COUNT 12
const char *hvd_cue_name(enum hvd_cue c); /* "done", ... */

/* The next state; from itself where there is no such edge. */
enum job_state hvd_next(enum job_state from, enum hvd_cue cue);
bool hvd_has_edge(enum job_state from, enum hvd_cue cue);

#endif
