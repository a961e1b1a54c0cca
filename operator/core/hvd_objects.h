/* SPDX-License-Identifier: Apache-2.0 */
/* The Kubernetes objects of a HorovodJob, built as trees. Pure and deterministic: the
 * same input gives the same bytes, so creating twice is recognised as "already exists".
 */
#ifndef OPERATOR_CORE_HVD_OBJECTS_H
#define OPERATOR_CORE_HVD_OBJECTS_H

#include "operator/core/front.h"
#include "operator/core/hvd_job.h"
#include "runtime/contract/token.h"

#define OBJECT_NAME_SIZE 96 /* any name made below, with its NUL */

void object_worker_name(const struct hvd_job *job,
                        uint32_t index,
                        char ret[OBJECT_NAME_SIZE]);
void object_secret_name(const struct hvd_job *job, char ret[OBJECT_NAME_SIZE]);

/* NULL when memory is out (b->status). token is 32 random bytes. */
struct node *
object_secret(struct build *b, const struct hvd_job *job, const uint8_t token[32]);
struct node *object_service(struct build *b, const struct hvd_job *job);
/* The index-th worker. Needs a job that passed hvd_validate. */
struct node *object_worker(struct build *b,
                           const struct hvd_job *job,
                           const struct object_config *cfg,
                           uint32_t index,
                           struct err *err);

#endif
