/* SPDX-License-Identifier: Apache-2.0 */
/* Names of pods and objects, and the DNS names of pods behind the headless Service.
 * Called by the builders and the planner. */
#include "operator/core/hvd/hvd_names.h"

#include <stdio.h>

void object_pod_name(const struct hvd_job *job,
                     enum role role,
                     uint32_t index,
                     char ret[OBJECT_NAME_SIZE])
{
    (void)snprintf(ret, OBJECT_NAME_SIZE, "%.63s-%s-%u", job->meta.name,
                   role_name(role), index);
}

void object_name(const struct hvd_job *job,
                 enum kube_kind kind,
                 char ret[OBJECT_NAME_SIZE])
{
    const char *what = kind == KUBE_SECRET      ? "-token"
                       : kind == KUBE_CONFIGMAP ? "-hosts"
                                                : "";

    (void)snprintf(ret, OBJECT_NAME_SIZE, "%.63s%s", job->meta.name, what);
}

void object_host(const struct hvd_job *job,
                 const struct object_config *cfg,
                 enum role role,
                 uint32_t index,
                 char ret[HOST_SIZE])
{
    bool has_domain = cfg->cluster_domain && *cfg->cluster_domain;
    char pod[OBJECT_NAME_SIZE];

    object_pod_name(job, role, index, pod);
    (void)snprintf(ret, HOST_SIZE, "%s.%.63s.%.63s.svc%s%.253s", pod, job->meta.name,
                   job->meta.ns, has_domain ? "." : "",
                   has_domain ? cfg->cluster_domain : "");
}

void object_job_id(const struct hvd_job *job, char ret[JOB_ID_MAX])
{
    (void)snprintf(ret, JOB_ID_MAX, "%s/%s/%s", job->meta.ns, job->meta.name,
                   job->meta.uid);
}
