/* SPDX-License-Identifier: Apache-2.0 */
/* Verdict -> the job's .status, and the Events that go with a change. Pure. */
#ifndef OPERATOR_CORE_HVD_STATUS_H
#define OPERATOR_CORE_HVD_STATUS_H

#include "operator/core/front.h"
#include "operator/core/hvd_verdict.h"

/* The whole new status. Times of unchanged conditions are those of job->status, so that
 * unchanged observations give a tree that is node_equal to the stored one. */
struct node *status_make(struct build *b,
                         const struct verdict_query *q,
                         const struct hvd_verdict *v);

/* The differences between the stored status and v, as Events. The texts belong to q, v
 * and the arena. Returns the number of notes. */
size_t status_events(const struct verdict_query *q,
                     const struct hvd_verdict *v,
                     struct arena *a,
                     struct event_note ret[DECISION_MAX_NOTES]);

#endif
