/* SPDX-License-Identifier: Apache-2.0 */
/* The decoded form of an MPIJob (kubeflow.org/v2beta1): typed, with the defaults of its
 * CRD and of mpi-operator. Pod templates remain trees. Pure. */
#ifndef OPERATOR_CORE_MPI_MPI_JOB_H
#define OPERATOR_CORE_MPI_MPI_JOB_H

#include "operator/core/meta.h"
#include "runtime/base/arena.h"
#include "runtime/base/strbuf.h"

#define MPI_API_VERSION   "kubeflow.org/v2beta1"
#define MPI_KIND          "MPIJob"
#define MPI_MAX_WORKERS   8192
#define MPI_ROOT_SSH_PATH "/root/.ssh" /* default of sshAuthMountPath */
#define MPI_NAME_SIZE     96 /* any name of an object of a job, with its NUL */
#define MPI_MESSAGE_MAX   1024

/* Annotations that mpi-operator does not have, each with one allowed value. */
#define MPI_EXTRA_LAUNCH  "ringmaster.dev/launch"  /* agent */
#define MPI_EXTRA_TTL     "ringmaster.dev/ttl"     /* job */
#define MPI_EXTRA_CLEANUP "ringmaster.dev/cleanup" /* launcher */

/* Reason of condition Created if the job started with agents and not with ssh. */
#define MPI_REASON_AGENT  "AgentLaunch"

enum mpi_implementation { MPI_OPENMPI, MPI_INTEL, MPI_MPICH };
enum mpi_clean { MPI_CLEAN_NONE, MPI_CLEAN_RUNNING, MPI_CLEAN_ALL };

struct mpi_replicas {
    bool is_set;
    uint32_t n;
    const char *restart_policy;
    const struct node *pod_template; /* NULL or an object */
};

struct mpi_job { /* strings and trees belong to the document it was decoded from */
    struct job_meta meta; /* first: see struct front */
    uint32_t slots;
    bool launcher_is_worker, waits_for_workers, is_suspended;
    bool is_agent;          /* no ssh: hvd-agent starts the processes of mpirun */
    bool is_launch_changed; /* the annotation was changed after the job started */
    bool ttl_is_of_job;     /* the TTL deletes the MPIJob, not only its launcher Job */
    bool must_clean_launcher; /* cleanPodPolicy All also deletes the launcher */
    enum mpi_implementation implementation;
    enum mpi_clean clean;
    const char *ssh_path;
    const char *managed_by;                    /* NULL if not set */
    int64_t ttl_s, deadline_s, backoff_limit;  /* -1: not set */
    int64_t min_available, schedule_timeout_s; /* -1: not set */
    const char *queue, *priority_class;        /* "" if not set */
    const struct node *min_resources;          /* NULL if not set */
    struct mpi_replicas launcher, worker;      /* worker.n: 0 if not set */
    const char *flaws; /* message of an Event with all problems; NULL: none */
};

/* See front->open. */
struct job_meta *mpi_job_open(const struct node *object,
                              const struct job_meta *meta,
                              struct arena *a,
                              struct strbuf *problems);
bool mpi_job_is_ours(const struct job_meta *job);

void mpi_worker_name(const struct mpi_job *job, uint32_t i, char ret[MPI_NAME_SIZE]);
/* "<job>-launcher" for "launcher"; also "config", "ssh", "token". */
void mpi_object_name(const struct mpi_job *job,
                     const char *what,
                     char ret[MPI_NAME_SIZE]);

/* Returns s, shortened to MPI_MESSAGE_MAX bytes with "..." at the end if it is longer;
 * NULL when memory is out. */
const char *mpi_cut(struct arena *a, const char *s);

#endif
