/* SPDX-License-Identifier: Apache-2.0 */
/* The seats of a job's pods, by generation. Pure. */
#ifndef OPERATOR_CORE_HVD_HVD_CREW_H
#define OPERATOR_CORE_HVD_HVD_CREW_H

#include "operator/core/hvd/hvd_job.h"
#include "operator/core/observed.h"

enum seat {
    SEAT_COMPLETED, /* its pod has succeeded, as the stored status says; it may be gone */
    SEAT_EMPTY,     /* no pod of this generation is known, present or deleted */
    SEAT_EXPECTED, /* the pod was created; the watch has not shown it yet */
    SEAT_TAKEN,    /* the pod exists */
    SEAT_LEFT,     /* the pod was deleted */
    SEAT_LEAVING,  /* the world that the worker received does not contain it: it exits
                       by itself and is then deleted */
};

/* *ret_pod: TAKEN: the pod; LEFT: the pod as last seen; else NULL. An existing pod
 * counts whatever its generation is: an older one will be patched. */
enum seat crew_seat(const struct hvd_job *job,
                    const struct observed *seen,
                    enum role role,
                    uint32_t index,
                    const struct pod **ret_pod);
/* True if the agent of worker index was sent a world that does not contain it. It must
 * not be sent another world, because it may have received the first one already. */
bool crew_is_leaving(const struct pod *p, uint32_t index);
/* True if the end of this pod decides about the job, so that the pod is created with
 * FINALIZER_TRACKING: the API server keeps it, even if it is deleted, until the end is in
 * the job's status. Otherwise pods that end and disappear while no operator runs would
 * look like pods that were lost, and a finished job would run again. With Horovod this is
 * one pod per job: worker 0 is in every world and exits with 0 only when all ranks have,
 * and every agent reports the first failure of the job. With a launcher it is the
 * launcher, with TensorFlow every pod. */
bool crew_is_tracked(const struct hvd_job *job, enum role role, uint32_t index);
/* True if no pod of any role exists or is expected. */
bool crew_is_empty(const struct observed *seen);

struct stuck {           /* pods whose deletion is overdue */
    const struct pod *p; /* the first of them; NULL if there is none */
    uint32_t n;
    uint64_t due_s; /* wall time when the next pod becomes overdue; 0: none will */
};
struct stuck crew_stuck(const struct observed *seen, uint64_t now_wall_s);

#endif
