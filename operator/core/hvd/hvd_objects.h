/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the Kubernetes objects of a HorovodJob as trees. Pure and deterministic: the
 * same input gives the same bytes. */
#ifndef OPERATOR_CORE_HVD_HVD_OBJECTS_H
#define OPERATOR_CORE_HVD_HVD_OBJECTS_H

#include "operator/core/hvd/hvd_job.h"
#include "operator/core/hvd/hvd_names.h"

/* The gang scheduling of this job. */
enum gang object_gang(const struct hvd_job *job, const struct object_config *cfg);
/* The schedulerName of the job's pods if the template sets none. */
const char *object_scheduler(const struct hvd_job *job,
                             const struct object_config *cfg);
/* True if the job has an object of that kind, other than pods: always a Service; a
 * Secret unless framework is tensorflow; a ConfigMap if there is a Launcher; a PodGroup
 * with gang scheduling. */
bool object_is_required(const struct hvd_job *job,
                        const struct object_config *cfg,
                        enum kube_kind kind);

/* All functions below return NULL when memory is out (b->status). */
struct node *object_secret(struct build *b,
                           const struct hvd_job *job,
                           const uint8_t token[32]); /* 32 random bytes */
struct node *object_service(struct build *b, const struct hvd_job *job);
/* The ConfigMap with the hosts of the workers, for the launcher. It changes when the job
 * is scaled. */
struct node *object_hosts(struct build *b,
                          const struct hvd_job *job,
                          const struct object_config *cfg);
/* Requires a job that passed hvd_validate, as object_pod does. It changes when the job
 * is scaled. err is set when NULL is returned. */
struct node *object_pod_group(struct build *b,
                              const struct hvd_job *job,
                              const struct object_config *cfg,
                              struct err *err);
struct node *object_pod(struct build *b,
                        const struct hvd_job *job,
                        const struct object_config *cfg,
                        enum role role,
                        uint32_t index,
                        struct err *err);

/* For the builders: a new object that the job owns. */
struct node *hvd_object_new(struct build *b,
                            const struct hvd_job *job,
                            const char *api_version,
                            const char *kind,
                            const char *name,
                            struct node *meta);

#endif
