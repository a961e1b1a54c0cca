/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the Kubernetes objects of an MPIJob other than its pods (mpi_pods.h), as
 * mpi-operator creates them. When memory is out, functions return NULL or set b->status.
 * The job must have no flaws. Pure and deterministic. */
#ifndef OPERATOR_CORE_MPI_MPI_OBJECTS_H
#define OPERATOR_CORE_MPI_MPI_OBJECTS_H

#include "operator/core/front.h"
#include "operator/core/mpi/mpi_job.h"

/* An object that the job owns, with its labels, and app unless it is a PodGroup. */
struct node *mpi_owned(struct build *b,
                       const struct mpi_job *job,
                       const char *api_version,
                       const char *kind,
                       const char *name);

struct node *mpi_service(struct build *b, const struct mpi_job *job);
struct node *mpi_config_map(struct build *b,
                            const struct mpi_job *job,
                            const char *hostfile,
                            const char *discover_hosts);
void mpi_secret_name(const struct mpi_job *job, char ret[MPI_NAME_SIZE]);
/* The ssh keys, or the token of a job that starts with agents. */
struct node *
mpi_secret(struct build *b, const struct mpi_job *job, const struct secrets *s);

#endif
