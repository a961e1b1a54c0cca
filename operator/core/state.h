/* SPDX-License-Identifier: Apache-2.0 */
/* States, conditions and statuses of jobs of any kind. Pure. */
#ifndef OPERATOR_CORE_STATE_H
#define OPERATOR_CORE_STATE_H

#include <stdbool.h>

#include "operator/doc/node.h"

enum job_state {
    STATE_PENDING,
    STATE_RUNNING,
    STATE_RESTARTING,
    STATE_SUSPENDED,
    STATE_SUCCEEDED,
    STATE_FAILED
};
#define STATE_COUNT 6
const char *state_name(enum job_state s);

/* The state of the first condition that is True in a stored status, in the order Failed,
 * Succeeded, Suspended, Restarting, Running; else STATE_PENDING. */
enum job_state state_of_status(const struct node *status);
bool state_is_live(enum job_state s); /* Pending or Running: its pods count */
bool state_is_final(enum job_state s);

/* NULL if absent. */
const struct node *condition_find(const struct node *status, const char *type);
/* True if `status` contains the condition with status "True". */
bool condition_is_true(const struct node *status, const char *type);

/* A copy of the status without the times that are copied from the stored status, and
 * without progress and goodput, which change by themselves. If the API server did not keep the last
 * status, the status is sent again only if this copy differs. NULL when memory is out. */
struct node *status_timeless(struct build *b, const struct node *status);
/* True if only counts, messages, goodput and completed indexes differ: such a status
 * may be delayed. */
bool status_is_progress(struct build *b,
                        const struct node *old,
                        const struct node *now);
/* True if only .progress and .goodput differ. Its writes have a pace of their own. */
bool status_is_report(struct build *b, const struct node *old, const struct node *now);
/* True if a job must be synced again once its status has been written: all but counts
 * and messages decide what follows. Completed indexes release pods. */
bool status_needs_sync(struct build *b, const struct node *old, const struct node *now);
/* The merge patch from old to now: now, with null for removed fields. NULL when memory
 * is out. */
struct node *
status_patch(struct build *b, const struct node *old, const struct node *now);
/* The name of a field that differs, NULL when they are equal. */
const char *status_difference(const struct node *sent, const struct node *kept);

#endif
