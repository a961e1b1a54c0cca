/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the job's .status from the verdict, and the Events for its changes. Pure. */
#ifndef OPERATOR_CORE_HVD_HVD_STATUS_H
#define OPERATOR_CORE_HVD_HVD_STATUS_H

#include "operator/core/front.h"
#include "operator/core/hvd/hvd_verdict.h"

/* The whole new status. An unchanged condition keeps its times from job->status, so an
 * unchanged snapshot gives a tree that is node_equal to the stored one. */
struct node *status_make(struct build *b,
                         const struct verdict_query *q,
                         const struct hvd_verdict *v);

/* Fills ret with the Events for the differences between the stored status and v. The
 * texts belong to q, v and the arena. Returns the number of Events. */
size_t status_events(const struct verdict_query *q,
                     const struct hvd_verdict *v,
                     struct arena *a,
                     struct event_note ret[DECISION_MAX_NOTES]);

#endif
