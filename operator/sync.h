/* SPDX-License-Identifier: Apache-2.0 */
/* One reconcile of one job: snapshot -> decision -> plan -> apply -> status. */
#ifndef OPERATOR_SYNC_H
#define OPERATOR_SYNC_H

#include "operator/controller.h"

#define SYNC_MAX_AT_ONCE 16
/* Of the jobs' text; a tree takes up to twenty times as much. */
#define SYNC_MAX_BYTES   (512u << 10)

/* Whether another one may start; the first always may. */
bool sync_has_room(const struct controller *op);

/* key was just taken from the queue; queue_done is called for it when the sync ends. */
void sync_start(struct controller *op, const char *key);
/* After kube_free, when no callback can run: drops the syncs at work. */
void sync_drop_all(struct controller *op);

#endif
