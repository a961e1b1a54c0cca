/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a HorovodJob as a state machine. Pure. */
#ifndef OPERATOR_CORE_HVD_CYCLE_H
#define OPERATOR_CORE_HVD_CYCLE_H

#include "operator/core/state.h"

/* What moves a job on; of several that hold at once, the one that is named first. */
enum hvd_cue {
    CUE_REFUSED, /* the spec or a pod is refused, and never was taken */
    CUE_DONE,    /* by successPolicy */
    CUE_DOOMED,  /* a failure that is not to be tried again */
    CUE_SUSPEND, /* the user wants it suspended */
    CUE_EXPIRED, /* activeDeadlineSeconds are over */
    CUE_BROKEN,  /* a failure after which it is tried again */
    CUE_REMAKE,  /* another number of workers, which these pods cannot become */
    CUE_RESIZE,  /* another number of workers, in place */
    CUE_RENEW,   /* what is missing would get another runtime than what is there */
    CUE_CLEARED, /* no pod is left, and none need be waited for */
    CUE_RUN,     /* all pods run */
    CUE_NONE
};
#define CUE_COUNT 12
const char *hvd_cue_name(enum hvd_cue c); /* "done", ... */

/* Where the cue leads; from itself where there is no such edge. */
enum job_state hvd_next(enum job_state from, enum hvd_cue cue);
bool hvd_has_edge(enum job_state from, enum hvd_cue cue);

#endif
