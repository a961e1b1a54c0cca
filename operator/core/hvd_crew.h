/* SPDX-License-Identifier: Apache-2.0 */
/* The places of a job's pods, looked at by generation. Pure. */
#ifndef OPERATOR_CORE_HVD_CREW_H
#define OPERATOR_CORE_HVD_CREW_H

#include "operator/core/hvd_job.h"
#include "operator/core/observed.h"

enum seat {
    PLACE_EMPTY,    /* no pod of this generation is or was here as far as we know */
    PLACE_EXPECTED, /* it was created; the watch has not shown it */
    PLACE_TAKEN,    /* it is there */
    PLACE_LEFT,     /* it was there and is no more */
    PLACE_LEAVING,  /* a worker without a place in the world that it was told of: it
                       ends by itself, and is to be deleted */
};

/* *ret_pod: TAKEN: the pod; LEFT: its last view, else NULL. A pod that is there counts
 * whatever its generation: an older one is to be patched. */
enum seat crew_place(const struct hvd_job *job,
                     const struct observed *seen,
                     enum role role,
                     uint32_t index,
                     const struct pod **ret_pod);
/* Of worker index: its agent was told of a world without it, and is not to be told of
 * another: it may have heard already. */
bool crew_is_leaving(const struct pod *p, uint32_t index);
/* No pod of any role is there or expected. */
bool crew_is_empty(const struct observed *seen);

struct stuck {           /* pods that should have gone: their deletion is overdue */
    const struct pod *p; /* the first; NULL if none */
    uint32_t n;
    uint64_t look_s; /* when the next will be, if it has not gone; 0: none */
};
struct stuck crew_stuck(const struct observed *seen, uint64_t now_wall_s);

#endif
