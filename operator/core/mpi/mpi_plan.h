/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the plan for an MPIJob from its view. Pure. */
#ifndef OPERATOR_CORE_MPI_MPI_PLAN_H
#define OPERATOR_CORE_MPI_MPI_PLAN_H

#include "operator/core/mpi/mpi_view.h"

/* discover_hosts.sh is written this long after the last worker started, and contains the
 * workers that run. */
#define MPI_SETTLE_S  2
#define MPI_REPLACE_S 10 /* time from the failure of a worker to its replacement */

/* Fills in ret's plan and requeue_ms. -ENOMEM. */
int mpi_plan_make(const struct question *q,
                  const struct mpi_view *v,
                  struct decision *ret);

#endif
