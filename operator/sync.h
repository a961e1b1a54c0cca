/* SPDX-License-Identifier: Apache-2.0 */
/* One reconcile of one job: snapshot -> decision -> plan -> apply -> status. */
#ifndef OPERATOR_SYNC_H
#define OPERATOR_SYNC_H

#include "operator/controller.h"

#define SYNC_MAX_AT_ONCE   32u
#define SYNC_MAX_NAMESPACE 8u /* syncs of one namespace */
/* The jobs' JSON in all syncs. Beyond it a namespace gets one sync only. A tree takes up
 * to twenty times as much. */
#define SYNC_MAX_BYTES     (512u << 10)

/* How many syncs a namespace may have now (see queue_take); 0: none may start. */
unsigned sync_room(const struct controller *op);

/* key must just have been taken from the queue; the sync calls queue_done at its end. */
void sync_start(struct controller *op, const char *key);
/* Frees the syncs in progress. Call it after kube_free, when no callback can run. */
void sync_drop_all(struct controller *op);

#endif
