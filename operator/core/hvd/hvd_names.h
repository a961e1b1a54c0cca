/* SPDX-License-Identifier: Apache-2.0 */
/* The names of a HorovodJob's objects. They depend only on the job's name, so the API
 * server refuses to create an object twice. Pure. */
#ifndef OPERATOR_CORE_HVD_HVD_NAMES_H
#define OPERATOR_CORE_HVD_HVD_NAMES_H

#include "operator/core/hvd/hvd_job.h"
#include "runtime/contract/contract.h"

#define OBJECT_NAME_SIZE 96  /* any name below, with its NUL */
#define HOST_SIZE        256 /* any host name; DNS has 253 */

/* "<job>-<role>-<index>". */
void object_pod_name(const struct hvd_job *job,
                     enum role role,
                     uint32_t index,
                     char ret[OBJECT_NAME_SIZE]);
/* The name of an object other than a pod: "<job>-token" for KUBE_SECRET, "<job>-hosts"
 * for KUBE_CONFIGMAP, otherwise the name of the job. */
void object_name(const struct hvd_job *job,
                 enum kube_kind kind,
                 char ret[OBJECT_NAME_SIZE]);
/* The pod's name in DNS, "<pod>.<job>.<namespace>.svc[.<domain>]". */
void object_host(const struct hvd_job *job,
                 const struct object_config *cfg,
                 enum role role,
                 uint32_t index,
                 char ret[HOST_SIZE]);
/* The id that the job's agents present to each other: "<namespace>/<name>/<uid>". */
void object_job_id(const struct hvd_job *job, char ret[JOB_ID_MAX]);

#endif
