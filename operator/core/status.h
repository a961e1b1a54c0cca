/* SPDX-License-Identifier: Apache-2.0 */
/* Verdict -> the job's .status, and the Events that go with a change. Pure. */
#ifndef OPERATOR_CORE_STATUS_H
#define OPERATOR_CORE_STATUS_H

#include "operator/core/verdict.h"

/* The whole new status. Times of what did not change are kept from job->status, so that
 * an unchanged world gives a tree that is node_equal to the stored one. */
struct node *status_make(struct build *b,
                         const struct job *job,
                         const struct verdict *v,
                         const struct outcome *outcome,
                         uint64_t now_wall_s);

/* The same without the times that are kept from job->status: what must differ before a
 * status is sent again to an API server that did not keep the last one. */
struct node *status_timeless(struct build *b, const struct node *status);
/* The name of a field that differs, NULL when they are equal. */
const char *status_difference(const struct node *sent, const struct node *kept);

/* Has nothing changed but counts and sentences? Nobody acts on them, so that such a
 * status may wait for the next. */
bool status_is_progress(struct build *b,
                        const struct node *old,
                        const struct node *now);

struct event_note {
    bool is_warning;
    bool is_once;       /* at most one of this reason in a job's life */
    const char *reason; /* CamelCase */
    const char *message;
};
#define STATUS_MAX_EVENTS 5

/* What changed between the stored status and v, as sentences for `kubectl describe`.
 * The texts live as long as job, v and outcome. Returns the number of notes. */
size_t status_events(const struct job *job,
                     const struct verdict *v,
                     const struct outcome *outcome,
                     struct event_note ret[STATUS_MAX_EVENTS]);

#endif
