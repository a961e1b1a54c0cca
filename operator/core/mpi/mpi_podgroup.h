/* SPDX-License-Identifier: Apache-2.0 */
/* The PodGroup of an MPIJob, for gang scheduling. Pure. */
#ifndef OPERATOR_CORE_MPI_MPI_PODGROUP_H
#define OPERATOR_CORE_MPI_MPI_PODGROUP_H

#include "operator/core/front.h"
#include "operator/core/mpi/mpi_job.h"

enum kube_kind mpi_pod_group_kind(enum gang gang); /* gang is not GANG_NONE */

/* has_launcher: the launcher's pod exists or may be created. A launcher that waits for
 * the workers does not count: a group that includes it would never start. NULL when
 * memory is out. */
struct node *mpi_pod_group(struct build *b,
                           const struct mpi_job *job,
                           enum gang gang,
                           const struct priorities *priorities,
                           bool has_launcher);

#endif
