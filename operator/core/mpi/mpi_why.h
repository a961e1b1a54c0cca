/* SPDX-License-Identifier: Apache-2.0 */
/* Why an MPIJob does not run (core/why.h), and what is requested to know it. Pure. */
#ifndef OPERATOR_CORE_MPI_MPI_WHY_H
#define OPERATOR_CORE_MPI_MPI_WHY_H

#include "operator/core/mpi/mpi_planner.h"
#include "operator/core/mpi/mpi_view.h"

/* One sentence; "" if the job runs, is about to, or is over. NULL: out of memory. */
const char *mpi_why(const struct question *q, const struct mpi_view *v);
#define MPI_WHY_ACTIONS 2u /* at most */
/* Plans what is due, and the time of what will be due. */
void mpi_why_plan(struct planner *p);

#endif
