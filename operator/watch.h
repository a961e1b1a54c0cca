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
 * http_run; must not start requests. What returns an int says 0, or -ENOMEM: it was not
 * taken, and is told again, or all is listed anew. */
struct watch_sink {
    void (*begin_list)(void *arg, enum kube_kind kind);
    int (*end_list)(void *arg, enum kube_kind kind);
    /* the tree lives during the call */
    int (*put)(void *arg, enum kube_kind kind, struct node *object);
    /* ns is "" of what has none */
    int (*drop)(void *arg, enum kube_kind kind, const char *ns, const char *name);
    /* the object as it was last, in place of drop; one of both is NULL */
    int (*lose)(void *arg, enum kube_kind kind, struct node *object);
    enum kube_kind kind; /* passed to each */
    bool is_metadata;    /* only the objects' metadata is asked for */
    void *arg;
    const struct prune_rule *rules;
};

struct watcher;
/* ns NULL: the whole cluster. selector NULL: all objects, else a label, or label=value.
 * A watch that is silent for idle_ms is taken for dead. is_optional: the API server
 * need not know the kind. */
int watcher_new(struct kube *kube,
                enum kube_kind kind,
                const char *ns,
                const char *selector,
                uint64_t idle_ms,
                bool is_optional,
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
/* Optional, and the API server has said that it does not know the kind. It is asked
 * again from time to time. */
bool watcher_is_absent(const struct watcher *w);
uint64_t watcher_received_ns(const struct watcher *w);
uint32_t watcher_n_restarts(const struct watcher *w);
uint64_t watcher_n_events(const struct watcher *w);
const char *watcher_trouble(const struct watcher *w); /* last error, "" when well */

#endif
