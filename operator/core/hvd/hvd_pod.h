/* SPDX-License-Identifier: Apache-2.0 */
/* Names of the operator's additions to the pods of a HorovodJob. hvd_validate.c refuses
 * templates that use them. */
#ifndef OPERATOR_CORE_HVD_HVD_POD_H
#define OPERATOR_CORE_HVD_HVD_POD_H

#include "operator/core/hvd/hvd_job.h"
#include "operator/core/inject.h"

#define VOLUME_WORLD    "ringmaster-world"
#define VOLUME_HOSTS    "ringmaster-hosts"
#define VOLUME_SHM      "ringmaster-shm"
#define MOUNT_WORLD     "/etc/ringmaster-world"
#define MOUNT_HOSTS     "/etc/ringmaster-hosts"
#define MOUNT_SHM       "/dev/shm"
#define HOSTFILE_KEY    "hostfile"    /* "HOST slots=N": Open MPI, horovodrun */
#define MACHINEFILE_KEY "machinefile" /* "HOST:N": MPICH, Intel MPI */

/* What the first container of a role's pods does. */
enum pod_part {
    PART_RANKS,     /* hvd-agent run, with the user's command as ranks */
    PART_SERVE,     /* hvd-agent serve, for the launcher */
    PART_LAUNCH,    /* the launcher's command */
    PART_TENSORFLOW /* the command with TF_CONFIG */
};
enum pod_part pod_part(const struct hvd_job *job, enum role role);

#endif
