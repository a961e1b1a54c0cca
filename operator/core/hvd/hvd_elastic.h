/* SPDX-License-Identifier: Apache-2.0 */
/* spec.elasticPolicy: a job that continues without some of its workers. Pure. */
#ifndef OPERATOR_CORE_HVD_HVD_ELASTIC_H
#define OPERATOR_CORE_HVD_HVD_ELASTIC_H

#include "operator/core/hvd/hvd_job.h"
#include "operator/core/observed.h"

/* Decodes it into job->elastic, after the roles; adds the role Launcher where the spec
 * has none. problems: as in hvd_decode_spec. */
void hvd_elastic_decode(const struct node *spec,
                        struct hvd_job *job,
                        struct strbuf *problems);
/* For hvd_validate: what contradicts other fields. */
void hvd_elastic_check(const struct hvd_job *job, struct strbuf *problems);
/* The most worker pods that the job can have. */
uint32_t hvd_most_workers(const struct hvd_job *job);

/* True if worker `index` has lost its pod: it has ended, is being deleted, or is gone.
 * has_all: every pod of this generation has existed. resize_s: the last change of size;
 * pods that the operator itself deleted before are not lost. */
bool hvd_elastic_has_lost(const struct hvd_job *job,
                          const struct observed *seen,
                          uint32_t index,
                          bool has_all,
                          uint64_t resize_s);
/* The wall time when a pod that has ended is replaced: later for one that has run for a
 * short time only, because its successor may, too. 0: at once. */
#define HVD_ELASTIC_AGAIN_S 30 /* at most, from the end */
uint64_t hvd_elastic_again_s(const struct pod *p);

/* The wall time from when on a pod in deletion is deleted by force: Kubernetes deletes it
 * because its node does not answer, and its name is needed. 0: it is not. */
uint64_t hvd_elastic_force_s(const struct pod *p);

/* The spec of the launcher pod that the operator adds: that of the Worker with a small
 * first container, which runs horovodrun with the Worker's command. */
struct node *hvd_launcher_spec(struct build *b, const struct hvd_job *job);

#endif
