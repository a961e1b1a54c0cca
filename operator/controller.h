/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the running operator. One thread owns all of it. */
#ifndef OPERATOR_CONTROLLER_H
#define OPERATOR_CONTROLLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "operator/core/front.h"
#include "operator/core/metrics.h"
#include "operator/core/pace.h"
#include "operator/core/queue.h"
#include "operator/core/store/store.h"
#include "operator/kube/client.h"

struct watcher;
struct event_recorder;
struct sync;
struct elect;
struct rival;
struct asker;
struct webhook;

enum watch_id {
    WATCH_HVD_JOBS,
    WATCH_MPI_JOBS,
    WATCH_HVD_PODS,
    WATCH_MPI_PODS,
    WATCH_BATCHES,
    WATCH_PRIORITIES, /* only with gang scheduling */
    WATCH_SERVICES,   /* from here on: metadata only, not required to be synced */
    WATCH_CONFIGMAPS,
    WATCH_VOLCANO_GROUPS, /* only with that kind of gang scheduling */
    WATCH_SCHEDULER_GROUPS,
};
#define WATCH_COUNT 10

struct controller {
    struct object_config objects;
    struct kube *kube;
    struct store *store;
    struct work_queue *queue;
    struct priorities priorities;
    struct watcher *watch[WATCH_COUNT]; /* NULL: not used */
    struct event_recorder *record;
    struct elect *elect;     /* NULL: no leader election */
    struct rival *rival;     /* NULL: not checked */
    struct asker *ask;       /* NULL: no job is asked */
    struct webhook *webhook; /* NULL: changes are not sent */
    struct operator_metrics metrics;
    struct pace pace;
    struct sync *syncs; /* syncs in progress; see sync.c */
    size_t n_syncs;
    size_t sync_bytes; /* size of the JSON of their jobs */
    uint64_t started_ns;
    /* When all jobs are queued, because a key was lost; 0: never. */
    uint64_t queue_all_ns;
    uint64_t went_back_ns; /* when the API server's versions went back; 0: never */
};

struct kube_config;
struct operator_options;
/* Creates the parts of a zeroed controller. -ENOMEM and others, with err; controller_close
 * is due in any case, and frees them. */
int controller_open(struct controller *op,
                    const struct kube_config *config,
                    const struct operator_options *o,
                    struct err *err);
void controller_close(struct controller *op);

/* True after every watch has listed its objects once; no decision is made before. One of
 * the two kinds of job may be absent from the cluster: its watch is skipped. */
bool controller_is_synced(const struct controller *op);
bool controller_leads(const struct controller *op);
/* True if it is synced, leads, and its caches contain all writes of former leaders. */
bool controller_may_act(const struct controller *op);
/* Queues the job of that key, due now. */
void controller_wake(struct controller *op, const char *key);
/* The same after all others: nothing has happened to it. */
void controller_sweep(struct controller *op, const char *key);
/* The job of that key could not be queued for lack of memory: queues all jobs one second
 * later. */
void controller_lost(struct controller *op, const char *key);

#endif
