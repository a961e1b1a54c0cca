/* SPDX-License-Identifier: Apache-2.0 */
/* One kind of object, listed and watched for ever. */
#ifndef OPERATOR_WATCH_H
#define OPERATOR_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "operator/doc/node.h"
#include "operator/doc/prune.h"
#include "operator/kube/client.h"

/* What the watcher does with what it hears: of each object what rules keep. Called from
 * http_run; must not start requests. */
struct watch_sink {
    void (*begin_list)(void *arg);
    void (*end_list)(void *arg);
    void (*put)(void *arg, struct node *object); /* the tree lives during the call */
    void (*drop)(void *arg, const char *ns, const char *name);
    void *arg;
    const struct prune_rule *rules;
};

struct watcher;
/* ns NULL: the whole cluster. selector NULL: all objects. A watch that is silent for
 * idle_ms is taken for dead. */
int watcher_new(struct kube *kube,
                enum kube_kind kind,
                const char *ns,
                const char *selector,
                uint64_t idle_ms,
                const struct watch_sink *sink,
                struct watcher **ret);
void watcher_free(struct watcher *w); /* after kube_free: its callbacks are gone then */
void watcher_tick(struct watcher *w,
                  uint64_t now_ns); /* starts what is to be started */
uint64_t watcher_next_ns(const struct watcher *w);
bool watcher_is_synced(const struct watcher *w); /* one list has been read to its end */
/* What is cached may be behind what others wrote: from now on it is not fresh until it
 * has been listed anew. */
void watcher_relist(struct watcher *w);
bool watcher_is_fresh(const struct watcher *w); /* and synced */
uint64_t watcher_heard_ns(const struct watcher *w);
uint32_t watcher_n_restarts(const struct watcher *w);
uint64_t watcher_n_events(const struct watcher *w);
const char *watcher_trouble(const struct watcher *w); /* last error, "" when well */

#endif
