/* SPDX-License-Identifier: Apache-2.0 */
/* The two files in /etc/mpi of a launcher, byte for byte as mpi-operator writes them.
 * Pure. */
#ifndef OPERATOR_CORE_MPI_MPI_CONFIG_H
#define OPERATOR_CORE_MPI_MPI_CONFIG_H

#include "operator/core/mpi/mpi_job.h"
#include "runtime/base/sha256.h"

#define MPI_CONFIG_MAX 1048576u /* most bytes in all values of a ConfigMap */

/* Writes hostfile: the launcher if it is a worker, then every worker of the spec. domain
 * may be "". */
void mpi_hostfile(struct strbuf *out, const struct mpi_job *job, const char *domain);
/* Returns the error message (field, value and limit) if both files do not fit in a
 * ConfigMap when all workers run. NULL: they fit, or memory is out (-ENOMEM in
 * *ret_status). */
const char *mpi_config_flaw(const struct mpi_job *job,
                            const char *domain,
                            struct arena *a,
                            int *ret_status);
/* Writes discover_hosts.sh, which prints the launcher if it is a worker, then the n pods
 * by name. It sorts `names`. */
void mpi_discover_hosts(struct strbuf *out,
                        const struct mpi_job *job,
                        const char *domain,
                        const char **names,
                        size_t n);
/* A digest of all that the content of both files depends on, for n running pods in the
 * order of their indexes. It shows whether the files of one job have changed without
 * writing them. */
void mpi_config_digest(const struct mpi_job *job,
                       const char *domain,
                       const char *const *names,
                       size_t n,
                       uint8_t ret[SHA256_BYTES]);

#endif
