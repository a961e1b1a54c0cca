/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of pending tensors: ready together or failed together. Used by pending.c only.
 * Pure. */
#ifndef RUNTIME_CORE_PENDING_GROUPS_H
#define RUNTIME_CORE_PENDING_GROUPS_H

#include "runtime/core/pending.h"

/* p is complete: adds it to its group. 0, -ENOMEM. */
int groups_add(struct pendings *t, struct pending *p);
/* Records the group that one rank names for p, whose group is disputed. 0, -ENOMEM. */
int groups_claim(struct pending *p, const struct tensor_request *q);
/* p is complete and its group is disputed: counts it as failed in all of them. 0,
 * -ENOMEM. */
int groups_dispute(struct pendings *t, const struct pending *p);
void groups_forget(struct pending *p); /* frees its claims */
void groups_clear(struct pendings *t);

/* pending.c: sets the error message unless it has one (0, -ENOMEM); moves from waiting
 * to ready. */
int pending_fail(struct pending *p, const struct err *why);
void pending_make_ready(struct pendings *t, struct pending *p);

#endif
