/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the worker pods and the launcher Job of an MPIJob, as mpi-operator creates them.
 * When memory is out, functions return NULL or set b->status. The job must have no flaws.
 * Pure and deterministic. */
#ifndef OPERATOR_CORE_MPI_MPI_PODS_H
#define OPERATOR_CORE_MPI_MPI_PODS_H

#include "operator/core/front.h"
#include "operator/core/mpi/mpi_job.h"

struct node *mpi_worker(struct build *b,
                        const struct mpi_job *job,
                        const struct object_config *cfg,
                        uint32_t index);
/* The launcher's batch/v1 Job; it is suspended if the MPIJob is. */
struct node *mpi_launcher(struct build *b,
                          const struct mpi_job *job,
                          const struct object_config *cfg);
/* The merge patch that starts a suspended launcher with the current scheduling
 * directives of the job's template. *ret_must_clear: the maps of the old directives must
 * be emptied first, by the patch of mpi_launcher_clear. */
struct node *mpi_launcher_resume(struct build *b,
                                 const struct mpi_job *job,
                                 const struct object_config *cfg,
                                 bool *ret_must_clear);
struct node *mpi_launcher_clear(struct build *b);

#endif
