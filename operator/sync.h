/* SPDX-License-Identifier: Apache-2.0 */
/* One reconcile of one job: snapshot -> decision -> plan -> apply -> status. */
#ifndef OPERATOR_SYNC_H
#define OPERATOR_SYNC_H

#include "operator/controller.h"

#define SYNC_MAX_AT_ONCE 16
/* Limit of the jobs' JSON in all syncs; a tree takes up to twenty times as much. */
#define SYNC_MAX_BYTES   (512u << 10)

/* True if another sync may start; the first one always may. */
bool sync_has_room(const struct controller *op);

/* key must just have been taken from the queue; the sync calls queue_done at its end. */
void sync_start(struct controller *op, const char *key);
/* Frees the syncs in progress. Call it after kube_free, when no callback can run. */
void sync_drop_all(struct controller *op);

#endif
