/* SPDX-License-Identifier: Apache-2.0 */
/* View -> plan for an MPIJob. Pure. */
#ifndef OPERATOR_CORE_MPI_PLAN_H
#define OPERATOR_CORE_MPI_PLAN_H

#include "operator/core/mpi_view.h"

/* discover_hosts.sh is written this long after the last worker started, with all
 * workers that run. */
#define MPI_SETTLE_S  2
#define MPI_REPLACE_S 10 /* from the failure of a worker until it is replaced */

/* Fills in ret's plan and requeue_ms. -ENOMEM. */
int mpi_plan_make(const struct question *q,
                  const struct mpi_view *v,
                  struct decision *ret);

#endif
