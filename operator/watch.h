/* SPDX-License-Identifier: Apache-2.0 */
/* Lists and watches one kind of object, until it is freed. */
#ifndef OPERATOR_WATCH_H
#define OPERATOR_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "operator/doc/node.h"
#include "operator/doc/prune.h"
#include "operator/kube/client.h"

/* Receives the objects of a watch, pruned by rules. Called from http_run; must not
 * start requests. Functions with a result return 0, or -ENOMEM if the object was not
 * stored: then the event or the list is repeated. */
struct watch_sink {
    void (*begin_list)(void *arg, enum kube_kind kind);
    int (*end_list)(void *arg, enum kube_kind kind);
    /* the tree is valid during the call */
    int (*put)(void *arg, enum kube_kind kind, struct node *object);
    /* ns is "" for cluster-wide kinds */
    int (*drop)(void *arg, enum kube_kind kind, const char *ns, const char *name);
    /* called instead of drop, with the last state of the object; one of the two functions
     * is NULL */
    int (*lose)(void *arg, enum kube_kind kind, struct node *object);
    /* called before a list whose version is older than what was listed or watched before:
     * all that is stored is of a time that the API server no longer knows */
    void (*went_back)(void *arg);
    enum kube_kind kind; /* passed to each function */
    bool is_metadata;    /* only the objects' metadata is requested */
    void *arg;
    const struct prune_rule *rules;
};

struct watcher;
/* ns NULL: the whole cluster. selector NULL: all objects, else a label, or label=value.
 * A watch that is silent for idle_ms is ended and the kind listed again. is_optional: the API server
 * may lack the kind. */
int watcher_new(struct kube *kube,
                enum kube_kind kind,
                const char *ns,
                const char *selector,
                uint64_t idle_ms,
                bool is_optional,
                const struct watch_sink *sink,
                struct watcher **ret);
void watcher_free(struct watcher *w); /* after kube_free, which drops the callbacks */
void watcher_tick(struct watcher *w, uint64_t now_ns); /* starts due requests */
uint64_t watcher_next_ns(const struct watcher *w);
/* The resourceVersion of the current list, else of the last one; 0: unknown. */
uint64_t watcher_list_version(const struct watcher *w);
bool watcher_is_synced(const struct watcher *w); /* one list is complete */
/* The cache may lag behind another leader's writes: it is not fresh until it has been
 * listed again. */
void watcher_relist(struct watcher *w);
bool watcher_is_fresh(const struct watcher *w); /* and synced */
/* True if the kind is optional and the API server does not know it. It is requested
 * again from time to time. */
bool watcher_is_absent(const struct watcher *w);
uint64_t watcher_received_ns(const struct watcher *w);
uint32_t watcher_n_restarts(const struct watcher *w);
uint64_t watcher_n_events(const struct watcher *w);
const char *watcher_trouble(const struct watcher *w); /* last error; "" if none */

#endif
