/* SPDX-License-Identifier: Apache-2.0 */
/* List and watch: does what core/reflector.c says.
 *
 *   list   pages of PAGE_LIMIT objects; begin_list before the first, end_list after the
 * last watch  from the last resourceVersion, with bookmarks, ended by the server after
 * 5 to 10 min
 *
 * Invariants
 *  1. At most one request or watch of a watcher is open (is_open).
 *  2. resource_version moves only forward within a watch: by each event and bookmark.
 *  3. An object that cannot be decoded is logged and skipped; it never stops the
 * others.
 *  4. Nothing is decided here: the sink fills the store and wakes keys. */
#include "operator/watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operator/core/reflector.h"
#include "operator/doc/json.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"

#define PAGE_LIMIT     "200"
#define SHORT_WATCH_NS 1000000000ull
#define TREE_PER_BYTE                                                                  \
    24u /* a parsed tree needs less than so much memory per byte of JSON */
#define TREE_MIN (256u << 10)

struct watcher {
    struct kube *kube;
    enum kube_kind kind;
    char *ns, *selector, *resume; /* resume: continue token of a list */
    struct watch_sink sink;
    struct reflector refl;
    char resource_version[64];
    char trouble[256];
    bool is_open, is_synced;
    bool has_expired; /* the watch sent ERROR 410 */
    uint64_t opened_ns, heard_ns, idle_ms, n_events, n_seen_this_watch;
};

int watcher_new(struct kube *kube,
                enum kube_kind kind,
                const char *ns,
                const char *selector,
                uint64_t idle_ms,
                const struct watch_sink *sink,
                struct watcher **ret)
{
    struct watcher *w = mem_zalloc(sizeof(*w));

    if (!w)
        return -ENOMEM;
    w->kube = kube;
    w->kind = kind;
    w->sink = *sink;
    w->ns = ns ? mem_strdup(ns) : NULL;
    w->selector = selector ? mem_strdup(selector) : NULL;
    w->idle_ms = idle_ms;
    reflector_init(&w->refl);
    if ((ns && !w->ns) || (selector && !w->selector)) {
        watcher_free(w);
        return -ENOMEM;
    }
    *ret = w;
    return 0;
}

void watcher_free(struct watcher *w)
{
    if (!w)
        return;
    mem_free(w->ns);
    mem_free(w->selector);
    mem_free(w->resume);
    mem_free(w);
}

bool watcher_is_synced(const struct watcher *w)
{
    return w->is_synced;
}

uint64_t watcher_heard_ns(const struct watcher *w)
{
    return w->heard_ns;
}

uint32_t watcher_n_restarts(const struct watcher *w)
{
    return w->refl.n_restarts;
}

uint64_t watcher_n_events(const struct watcher *w)
{
    return w->n_events;
}

const char *watcher_trouble(const struct watcher *w)
{
    return w->trouble;
}

static uint32_t random32(void)
{
    uint32_t v = 0;

    (void)random_bytes(&v, sizeof(v)); /* without it the jitter is merely zero */
    return v;
}

/* The one place where the state moves; says what went wrong, once per change. */
static void step(struct watcher *w, enum refl_event ev, const char *why)
{
    uint64_t now_ns = clock_now_ns();
    bool was_short =
        now_ns - w->opened_ns < SHORT_WATCH_NS && w->n_seen_this_watch == 0;
    enum refl_state next;

    w->is_open = false;
    next = reflector_next(&w->refl, ev, was_short, now_ns, random32());
    if (ev == REFL_LISTED || ev == REFL_WATCH_END)
        w->trouble[0] = '\0';
    else if (ev != REFL_TIMER)
        (void)snprintf(w->trouble, sizeof(w->trouble), "%.255s", why);
    if (next == REFL_BACKOFF)
        log_warn("watch interrupted", "kind=%s retry_ms=%llu cause=\"%s\"",
                 kube_kind_name(w->kind),
                 (unsigned long long)((w->refl.wake_ns - now_ns) / NS_PER_MS), why);
    else if (ev == REFL_EXPIRED)
        log_info("watch expired, listing again", "kind=%s", kube_kind_name(w->kind));
}

static void set_version(struct watcher *w, const struct node *object)
{
    const char *v = node_str(object, "metadata.resourceVersion");

    if (v && *v)
        (void)snprintf(w->resource_version, sizeof(w->resource_version), "%s", v);
}

/* --- list --------------------------------------------------------------------------
 */

static int read_page(struct watcher *w, const struct kube_reply *r, struct err *err)
{
    struct arena a;
    struct node *list;
    const struct node *items;
    const char *resume;
    int rc;

    arena_init(&a, r->n * TREE_PER_BYTE + TREE_MIN);
    rc = json_read(&a, r->body, r->n, &list, err);
    items = rc == 0 ? node_get(list, "items") : NULL;
    if (rc == 0 && (!items || items->type != NODE_ARRAY))
        rc = err_set(err, -EINVAL, "the list has no items");
    if (rc == 0) {
        if (!w->resume)
            w->sink.begin_list(w->sink.arg);
        for (struct node *c = items->first; c; c = c->next)
            w->sink.put(w->sink.arg, c);
        resume = node_str(list, "metadata.continue");
        mem_free(w->resume);
        w->resume = resume && *resume ? mem_strdup(resume) : NULL;
        if (resume && *resume && !w->resume)
            rc = err_set(err, -ENOMEM, "out of memory");
        set_version(w, list);
    }
    arena_release(&a);
    return rc;
}

static void on_page(void *arg, const struct kube_reply *r)
{
    struct watcher *w = arg;
    struct err err = ERR_INIT;
    bool is_first = !w->resume;

    w->heard_ns = clock_now_ns();
    w->is_open = false;
    if (r->answer.cls == ANSWER_OK && read_page(w, r, &err) == 0) {
        if (w->resume)
            return; /* watcher_tick asks for the next page */
        w->is_synced = true;
        w->sink.end_list(w->sink.arg);
        step(w, REFL_LISTED, "");
        return;
    }
    mem_free(w->resume);
    w->resume = NULL;
    if (r->answer.cls == ANSWER_GONE)
        step(w, REFL_EXPIRED, "the list's place has expired");
    else if (r->answer.cls == ANSWER_NOT_FOUND && w->kind == KUBE_JOB && is_first)
        step(w, REFL_ERROR,
             "the API server does not know HorovodJobs: apply "
             "manifests/crd/horovodjobs.ringmaster.dev.yaml");
    else
        step(w, REFL_ERROR, err.code ? err.text : r->answer.message);
}

static int start_list(struct watcher *w, struct err *err)
{
    struct kube_request rq = {
        .method = "GET", .kind = w->kind, .ns = w->ns, .done = on_page, .arg = w};
    struct strbuf query;
    int rc;

    strbuf_init(&query, 8192);
    kube_query(&query, "limit", PAGE_LIMIT);
    kube_query(&query, "labelSelector", w->selector);
    kube_query(&query, "continue", w->resume);
    rq.query = strbuf_str(&query);
    rc = strbuf_status(&query) ? err_set(err, -ENOMEM, "query too long")
                               : kube_submit(w->kube, &rq, err);
    strbuf_release(&query);
    return rc;
}

/* --- watch -------------------------------------------------------------------------
 */

static int on_event(struct watcher *w, struct node *event)
{
    const char *type = node_str(event, "type");
    struct node *object = NULL;

    for (struct node *c = event->first; c; c = c->next) {
        if (strcmp(c->key, "object") == 0)
            object = c;
    }
    if (!type || !object)
        return -EBADMSG;
    if (strcmp(type, "ERROR") == 0) {
        const char *message = node_str(object, "message");

        w->has_expired = node_int(object, "code", 0) == 410;
        (void)snprintf(w->trouble, sizeof(w->trouble), "%s",
                       message ? message : "the watch sent an error");
        return -ECANCELED;
    }
    set_version(w, object);
    if (strcmp(type, "BOOKMARK") == 0)
        return 0;
    w->n_events++;
    if (strcmp(type, "DELETED") == 0) {
        const char *ns = node_str(object, "metadata.namespace");
        const char *name = node_str(object, "metadata.name");

        w->sink.drop(w->sink.arg, ns ? ns : "", name ? name : "");
    } else {
        w->sink.put(w->sink.arg, object);
    }
    return 0;
}

static int on_line(void *arg, const char *line, size_t n)
{
    struct watcher *w = arg;
    struct err err = ERR_INIT;
    struct arena a;
    struct node *event;
    int rc;

    w->heard_ns = clock_now_ns();
    w->n_seen_this_watch++;
    arena_init(&a, n * TREE_PER_BYTE + TREE_MIN);
    rc = json_read(&a, line, n, &event, &err);
    if (rc == 0)
        rc = on_event(w, event);
    else
        (void)snprintf(w->trouble, sizeof(w->trouble), "%.200s", err.text);
    arena_release(&a);
    return rc;
}

static void on_watch_end(void *arg, const struct kube_reply *r)
{
    struct watcher *w = arg;
    char why[sizeof(w->trouble)];

    (void)snprintf(why, sizeof(why), "%.255s",
                   *w->trouble ? w->trouble : r->answer.message);
    if (w->has_expired || r->answer.cls == ANSWER_GONE)
        step(w, REFL_EXPIRED, "the watch's place has expired");
    else if (r->answer.cls == ANSWER_OK)
        step(w, REFL_WATCH_END, "the watch ended at once");
    else
        step(w, REFL_ERROR, why);
}

static int start_watch(struct watcher *w, struct err *err)
{
    struct kube_watch spec = {.kind = w->kind,
                              .ns = w->ns,
                              .idle_ms = w->idle_ms,
                              .line = on_line,
                              .done = on_watch_end,
                              .arg = w};
    struct strbuf query;
    char seconds[16];
    int rc;

    (void)snprintf(seconds, sizeof(seconds), "%u", 300u + random32() % 300u);
    strbuf_init(&query, 8192);
    kube_query(&query, "watch", "1");
    kube_query(&query, "allowWatchBookmarks", "true");
    kube_query(&query, "resourceVersion", w->resource_version);
    kube_query(&query, "timeoutSeconds", seconds);
    kube_query(&query, "labelSelector", w->selector);
    spec.query = strbuf_str(&query);
    w->has_expired = false;
    w->trouble[0] = '\0';
    w->n_seen_this_watch = 0;
    rc = strbuf_status(&query) ? err_set(err, -ENOMEM, "query too long")
                               : kube_watch(w->kube, &spec, err);
    strbuf_release(&query);
    return rc;
}

void watcher_tick(struct watcher *w, uint64_t now_ns)
{
    struct err err = ERR_INIT;
    int rc = 0;

    if (w->refl.state == REFL_BACKOFF && now_ns >= w->refl.wake_ns)
        step(w, REFL_TIMER, "");
    if (w->is_open || w->refl.state == REFL_BACKOFF)
        return;
    w->is_open = true;
    w->opened_ns = now_ns;
    switch (w->refl.state) {
    case REFL_LISTING:
        rc = start_list(w, &err);
        break;
    case REFL_WATCHING:
        w->heard_ns = now_ns;
        rc = start_watch(w, &err);
        break;
    case REFL_BACKOFF:
        return;
    }
    if (rc < 0)
        step(w, REFL_ERROR, err.text);
}

uint64_t watcher_next_ns(const struct watcher *w)
{
    if (w->refl.state == REFL_BACKOFF)
        return w->refl.wake_ns;
    return w->is_open ? UINT64_MAX : 0;
}
