/* SPDX-License-Identifier: Apache-2.0 */
/* Verdict -> the job's .status, and the Events that go with a change. Pure. */
#ifndef OPERATOR_CORE_HVD_STATUS_H
#define OPERATOR_CORE_HVD_STATUS_H

#include "operator/core/front.h"
#include "operator/core/hvd_verdict.h"

/* The whole new status. Times of what did not change are kept from job->status, so that
 * an unchanged world gives a tree that is node_equal to the stored one. */
struct node *status_make(struct build *b,
                         const struct verdict_query *q,
                         const struct hvd_verdict *v);

/* What changed between the stored status and v, as sentences for `kubectl describe`.
 * The texts live as long as q and v, and in the arena. Returns the number of notes. */
size_t status_events(const struct verdict_query *q,
                     const struct hvd_verdict *v,
                     struct arena *a,
                     struct event_note ret[DECISION_MAX_NOTES]);

#endif
