/* SPDX-License-Identifier: Apache-2.0 */
/* View -> what to do for an MPIJob. Pure. */
#ifndef OPERATOR_CORE_MPI_PLAN_H
#define OPERATOR_CORE_MPI_PLAN_H

#include "operator/core/mpi_view.h"

#define MPI_SETTLE_S                                                                   \
    2 /* so long after the last worker has begun to run, the running                   \
         ones are written to discover_hosts.sh, all at once */
#define MPI_REPLACE_S 10 /* so long a failed worker stays before it is replaced */

/* Fills in ret's plan and requeue_ms. -ENOMEM. */
int mpi_plan_make(const struct question *q,
                  const struct mpi_view *v,
                  struct decision *ret);

#endif
