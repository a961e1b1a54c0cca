/* SPDX-License-Identifier: Apache-2.0 */
/* The summary of a snapshot for an MPIJob: counts and progress. Pure. */
#ifndef OPERATOR_CORE_MPI_VIEW_H
#define OPERATOR_CORE_MPI_VIEW_H

#include "operator/core/front.h"
#include "operator/core/mpi_job.h"

#define MPI_REASON_DEADLINE  "DeadlineExceeded"
#define MPI_MESSAGE_DEADLINE "Job was active longer than specified deadline"

struct mpi_view {
    bool was_finished; /* by the stored status, with or without completionTime */
    bool has_launcher; /* the launcher's Job exists, or existed until it ended */
    bool is_complete, is_failed; /* the launcher's Job */
    bool is_expired;  /* activeDeadlineSeconds are over, and the launcher's Job does not
                         enforce them */
    bool is_resuming; /* still suspended by the stored status */
    bool may_launch;  /* launcherCreationPolicy allows the launcher */
    uint32_t running, succeeded, failed, evicted; /* workers of the spec */
    uint32_t launchers;                           /* running pods of the launcher */
    uint64_t start_s, completion_s;               /* stored; 0: none */
    const struct pod *stuck; /* its deletion is overdue, and the job waits for it */
    uint64_t stuck_look_s;   /* when that of another pod becomes overdue; 0: none */
};

struct mpi_view mpi_view_make(const struct question *q);
/* True if the job is finished, by the stored status or by the one that will be written.
 * Then no object is created any more. */
bool mpi_view_is_over(const struct mpi_view *v);

#endif
