/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the MPIJob's .status and its Events from the view. Pure. */
#ifndef OPERATOR_CORE_MPI_MPI_STATUS_H
#define OPERATOR_CORE_MPI_MPI_STATUS_H

#include "operator/core/mpi/mpi_view.h"

/* Fills in ret's status, notes, state, reason and message. A job with flaws gets one
 * Event and no status. -ENOMEM. */
int mpi_status_make(const struct question *q,
                    const struct mpi_view *v,
                    struct decision *ret);

#endif
