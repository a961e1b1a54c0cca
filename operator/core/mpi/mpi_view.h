/* SPDX-License-Identifier: Apache-2.0 */
/* The summary of a snapshot for an MPIJob: counts and progress. Pure. */
#ifndef OPERATOR_CORE_MPI_MPI_VIEW_H
#define OPERATOR_CORE_MPI_MPI_VIEW_H

#include "operator/core/front.h"
#include "operator/core/mpi/mpi_job.h"

#define MPI_REASON_DEADLINE  "DeadlineExceeded"
#define MPI_MESSAGE_DEADLINE "Job was active longer than specified deadline"

struct mpi_view {
    bool was_finished; /* in the stored status, with or without completionTime */
    bool has_launcher; /* the launcher's Job exists, or existed until it finished */
    bool is_complete, is_failed; /* result of the launcher's Job */
    bool is_expired;  /* activeDeadlineSeconds have passed, and the launcher's Job does
                         not enforce them */
    bool is_resuming; /* the stored status is still Suspended */
    bool may_launch;  /* launcherCreationPolicy allows the launcher */
    uint32_t running, succeeded, failed, evicted; /* number of workers of the spec */
    uint32_t launchers;             /* number of running pods of the launcher */
    uint64_t start_s, completion_s; /* times in the stored status; 0: none */
    const struct pod *stuck; /* a pod that the job waits for: its deletion is overdue */
    uint64_t stuck_due_s;    /* wall time when another pod becomes overdue; 0: none */
};

struct mpi_view mpi_view_make(const struct question *q);
/* True if the job is finished, in the stored status or in the one that will be written.
 * Then no object is created any more. */
bool mpi_view_is_over(const struct mpi_view *v);

#endif
