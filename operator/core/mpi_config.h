/* SPDX-License-Identifier: Apache-2.0 */
/* The two files that a launcher finds in /etc/mpi, byte for byte as mpi-operator writes
 * them. Pure. */
#ifndef OPERATOR_CORE_MPI_CONFIG_H
#define OPERATOR_CORE_MPI_CONFIG_H

#include "operator/core/mpi_job.h"

#define MPI_CONFIG_MAX 1048576u /* bytes of all values of a ConfigMap */

/* hostfile: the launcher if it is a worker, then every worker that is wanted. domain
 * may be "". */
void mpi_hostfile(struct strbuf *out, const struct mpi_job *job, const char *domain);
/* Why both files, once all workers run, do not fit in a ConfigMap: a sentence of field,
 * value and limit. NULL: they do, or memory is out (-ENOMEM in *ret_status). */
const char *mpi_config_flaw(const struct mpi_job *job,
                            const char *domain,
                            struct arena *a,
                            int *ret_status);
/* discover_hosts.sh, which prints the launcher if it is a worker, then the n pods by
 * name. Sorts names. */
void mpi_discover_hosts(struct strbuf *out,
                        const struct mpi_job *job,
                        const char *domain,
                        const char **names,
                        size_t n);

#endif
