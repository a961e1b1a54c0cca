/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of pending tensors: ready together, or failing together. Only for pending.c.
 * Pure. */
#ifndef RUNTIME_CORE_PENDING_GROUPS_H
#define RUNTIME_CORE_PENDING_GROUPS_H

#include "runtime/core/pending.h"

/* p is complete. 0, -ENOMEM */
int groups_add(struct pendings *t, struct pending *p);
/* One rank's word about the group of p, of which ranks disagree. 0, -ENOMEM */
int groups_claim(struct pending *p, const struct tensor_request *q);
/* p is complete, and nobody knows in which group it is. 0, -ENOMEM */
int groups_dispute(struct pendings *t, const struct pending *p);
void groups_forget(struct pending *p); /* its claims */
void groups_clear(struct pendings *t);

/* pending.c: fails unless it does already (0, -ENOMEM); from waiting to ready. */
int pending_fail(struct pending *p, const struct err *why);
void pending_make_ready(struct pendings *t, struct pending *p);

#endif
