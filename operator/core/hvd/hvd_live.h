/* SPDX-License-Identifier: Apache-2.0 */
/* What the live report (q->seen->live) adds to the status of a HorovodJob: progress, the
 * conditions Stalled and Straggling, and their Events. And where the report comes from.
 * Pure. */
#ifndef OPERATOR_CORE_HVD_HVD_LIVE_H
#define OPERATOR_CORE_HVD_HVD_LIVE_H

#include "operator/core/front.h"
#include "operator/core/hvd/hvd_verdict.h"

/* The agent of worker 0, or horovodrun in the launcher of an elastic job, while its
 * container runs and the job is not over. Other jobs with a launcher and those with
 * TensorFlow's tasks have neither. -ENOMEM. */
int hvd_live_target(const struct verdict_query *q,
                    const struct hvd_verdict *v,
                    struct arena *a,
                    struct ask_target *ret);

/* Sets status.progress. Without a report that of the stored status stays. */
void hvd_live_progress(struct build *b,
                       const struct verdict_query *q,
                       const struct hvd_verdict *v,
                       struct node *status);
/* Adds the two conditions, each if it is true or was true once. Without a report they
 * stay. now: a timestamp. */
void hvd_live_conditions(struct build *b,
                         const struct verdict_query *q,
                         const struct hvd_verdict *v,
                         const char *now,
                         struct node *list);
#define HVD_LIVE_MAX_NOTES 2
/* One Event when a condition becomes true, and one when it becomes false while the job
 * runs. Returns how many were written to ret. */
size_t hvd_live_events(const struct verdict_query *q,
                       const struct hvd_verdict *v,
                       struct arena *a,
                       struct event_note ret[HVD_LIVE_MAX_NOTES]);

#endif
