/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the running operator, wired together by main.c. One thread owns all of
 * it. */
#ifndef OPERATOR_CONTROLLER_H
#define OPERATOR_CONTROLLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "operator/core/metrics.h"
#include "operator/core/pace.h"
#include "operator/core/objects.h"
#include "operator/core/queue.h"
#include "operator/core/store.h"
#include "operator/kube/client.h"

struct watcher;
struct record;
struct sync;
struct elect;

struct controller {
    struct object_config objects;
    struct kube *kube;
    struct store *store;
    struct queue *queue;
    struct watcher *jobs, *pods;
    struct record *record;
    struct elect *elect; /* NULL: we act always */
    struct metrics metrics;
    struct pace pace;
    struct sync *syncs; /* at work now; see sync.c */
    size_t n_syncs;
    uint64_t started_ns;
};

/* Every watch has filled the cache once: only then may anything be decided. */
bool controller_is_synced(const struct controller *op);
bool controller_leads(const struct controller *op);
/* Synced, leading, and the caches hold what former leaders wrote. */
bool controller_may_act(const struct controller *op);
/* One of our keys wants attention now. Out of memory is logged: the next event asks
 * again. */
void controller_wake(struct controller *op, const char *key);

#endif
