/* SPDX-License-Identifier: Apache-2.0 */
/* The two files that a launcher finds in /etc/mpi, byte for byte as mpi-operator writes
 * them. Pure. */
#ifndef OPERATOR_CORE_MPI_CONFIG_H
#define OPERATOR_CORE_MPI_CONFIG_H

#include "operator/core/mpi_job.h"

/* hostfile: the launcher if it is a worker, then every worker that is wanted. domain
 * may be "". */
void mpi_hostfile(struct strbuf *out, const struct mpi_job *job, const char *domain);
/* discover_hosts.sh, which prints the launcher if it is a worker, then the n pods by
 * name. Sorts names. */
void mpi_discover_hosts(struct strbuf *out,
                        const struct mpi_job *job,
                        const char *domain,
                        const char **names,
                        size_t n);

#endif
