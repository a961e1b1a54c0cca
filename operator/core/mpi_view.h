/* SPDX-License-Identifier: Apache-2.0 */
/* What a snapshot says about an MPIJob: counts, and how far it has come. Pure. */
#ifndef OPERATOR_CORE_MPI_VIEW_H
#define OPERATOR_CORE_MPI_VIEW_H

#include "operator/core/front.h"
#include "operator/core/mpi_job.h"

#define MPI_REASON_DEADLINE  "DeadlineExceeded"
#define MPI_MESSAGE_DEADLINE "Job was active longer than specified deadline"

struct mpi_view {
    bool was_finished; /* the stored status says so, with or without completionTime */
    bool has_launcher; /* the launcher's Job is there as far as we know, or was there
                          until it ended */
    bool is_complete, is_failed; /* the launcher's Job */
    bool is_expired;  /* activeDeadlineSeconds are over, and the launcher's Job does not
                         see to it */
    bool is_resuming; /* the stored status still says that it is suspended */
    bool may_launch;  /* launcherCreationPolicy lets the launcher go */
    uint32_t running, succeeded, failed, evicted; /* workers that are wanted */
    uint32_t launchers;                           /* running pods of the launcher */
    uint64_t start_s, completion_s;               /* stored; 0: not there */
    const struct pod *stuck; /* its deletion is overdue, and the job waits for it */
    uint64_t stuck_look_s;   /* when another's will be; 0: none */
};

struct mpi_view mpi_view_make(const struct question *q);
/* Has it ended, for whatever reason, or will the status that is to be written say so?
 * Nothing is created any more. */
bool mpi_view_is_over(const struct mpi_view *v);

#endif
