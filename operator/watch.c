/* SPDX-License-Identifier: Apache-2.0 */
/* List and watch: executes the transitions of core/reflector.c.
 *
 *   list    pages of PAGE_LIMIT objects; begin_list before the first, end_list after
 *           the last. A page that is too large is requested again in smaller ones, one
 *           that did not arrive is requested again
 *   watch   from the last resourceVersion, with bookmarks, ended by the server after
 *           5 to 10 min
 *
 * Invariants
 *  1. At most one request or watch of a watcher is open (is_open).
 *  2. resource_version moves only forward within a watch: by each event and bookmark.
 *  3. An object that cannot be read is logged and skipped; it never stops other
 *     objects. Lines that are not events end the watch; after MAX_BAD_LINES of them in
 *     a row the watcher lists, since the same position might return the same lines
 *     again.
 *  4. Only one object is a tree at any time: a page is split as text. With the size of
 *     a page and of an object this bounds the memory, whatever users store.
 *  5. received_ns moves only when the API server has sent something usable.
 *  6. Nothing is decided here: the sink fills the store and queues keys.
 *  7. If the sink has no memory for an event, the watch ends before that event and
 *     starts there again; a list starts again. Both after a pause. */
#include "operator/watch.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operator/core/reflector.h"
#include "operator/doc/json.h"
#include "operator/doc/object.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"

#define PAGE_LIMIT     50u /* pods with their managedFields: half a megabyte */
#define PAGE_SHRINK    8u
#define MAX_BAD_LINES  3u
#define MAX_SILENT     2u
#define MAX_META_BYTES (1u << 20) /* tree of a list's metadata, or of an ERROR */
#define SHORT_WATCH_NS 1000000000ull

struct watcher {
    struct kube *kube;
    enum kube_kind kind;
    char *ns, *selector, *resume; /* resume: continue token of a list */
    struct watch_sink sink;
    struct reflector refl;
    char resource_version[64];
    uint64_t list_version; /* of the current or last list; 0: it had none */
    char trouble[256];
    bool is_open, is_synced;
    bool is_stale,
        is_relisting; /* see watcher_relist; the current list is the new one */
    bool is_optional, is_absent;
    bool has_opened;                            /* the server has accepted the watch */
    bool has_expired;                           /* the watch sent ERROR 410 */
    unsigned page_limit, n_bad_lines, n_silent; /* silent: watches in a row */
    uint64_t opened_ns, received_ns, idle_ms, n_events, n_seen_this_watch;
};

int watcher_new(struct kube *kube,
                enum kube_kind kind,
                const char *ns,
                const char *selector,
                uint64_t idle_ms,
                bool is_optional,
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
    w->is_optional = is_optional;
    w->page_limit = PAGE_LIMIT;
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

uint64_t watcher_list_version(const struct watcher *w)
{
    return w->list_version;
}

bool watcher_is_synced(const struct watcher *w)
{
    return w->is_synced;
}

bool watcher_is_fresh(const struct watcher *w)
{
    return w->is_synced && !w->is_stale;
}

bool watcher_is_absent(const struct watcher *w)
{
    return w->is_absent;
}

uint64_t watcher_received_ns(const struct watcher *w)
{
    return w->received_ns;
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

static uint32_t watcher_random32(void)
{
    uint32_t v = 0;

    (void)random_bytes(&v, sizeof(v)); /* on failure there is no jitter */
    return v;
}

/* Silent for so long that a healthy server would have sent a bookmark. Half of the limit,
 * because the limit counts from an earlier moment. */
static bool watch_was_silent(const struct watcher *w, uint64_t now_ns)
{
    return w->refl.state == REFL_WATCHING && w->has_opened && w->n_seen_this_watch == 0
           && now_ns - w->opened_ns >= w->idle_ms * NS_PER_MS / 2;
}

/* The only place where the state changes; logs each problem once per change. */
static void watcher_step(struct watcher *w, enum refl_event ev, const char *why)
{
    uint64_t now_ns = clock_now_ns();
    bool was_short =
        !w->has_opened
        || (now_ns - w->opened_ns < SHORT_WATCH_NS && w->n_seen_this_watch == 0);
    enum refl_state next;

    if ((ev == REFL_ERROR || ev == REFL_WATCH_END) && watch_was_silent(w, now_ns)
        && ++w->n_silent % MAX_SILENT
               == 0) /* the first one may be the network's fault */
        ev = REFL_SILENT;
    w->is_open = false;
    next = reflector_next(&w->refl, ev, was_short, now_ns, watcher_random32());
    if (ev == REFL_LISTED || ev == REFL_WATCH_END)
        w->trouble[0] = '\0';
    else if (ev != REFL_TIMER)
        (void)snprintf(w->trouble, sizeof(w->trouble), "%.255s", why);
    if (next == REFL_BACKOFF && !w->is_absent)
        log_warn("watch interrupted", "kind=%s retry_ms=%llu cause=\"%s\"",
                 kube_kind_name(w->kind),
                 (unsigned long long)((w->refl.wake_ns - now_ns) / NS_PER_MS), why);
    else if (ev == REFL_EXPIRED)
        log_info("listing again", "kind=%s cause=\"%s\"", kube_kind_name(w->kind), why);
}

static struct json_span version_of(struct json_span object)
{
    return json_find_text(json_find(object, "metadata"), "resourceVersion");
}

/* Versions are one counter of etcd. It goes back only if etcd was restored. */
static void check_version(struct watcher *w, struct json_span list)
{
    struct json_span v = version_of(list);
    char text[sizeof(w->resource_version)];

    (void)snprintf(text, sizeof(text), "%.*s", v.n < sizeof(text) ? (int)v.n : 0, v.p);
    w->list_version = strtoull(text, NULL, 10);
    if (w->list_version > 0
        && w->list_version < strtoull(w->resource_version, NULL, 10))
        w->sink.went_back(w->sink.arg);
}

static void set_version(struct watcher *w, struct json_span object)
{
    struct json_span v = version_of(object);

    if (v.n > 0 && v.n < sizeof(w->resource_version)) {
        memcpy(w->resource_version, v.p, v.n);
        w->resource_version[v.n] = '\0';
    }
}

typedef int (*object_fn)(void *arg, enum kube_kind kind, struct node *object);

/* -ENOMEM only; an unreadable object is logged. */
static int watcher_give_object(struct watcher *w, struct json_span text, object_fn fn)
{
    struct json_span meta = json_find(text, "metadata");
    struct json_span ns = json_find_text(meta, "namespace");
    struct json_span name = json_find_text(meta, "name");
    struct err err = ERR_INIT;
    struct node *object;
    struct arena a;
    int rc;

    arena_init(&a, OBJECT_MAX_BYTES);
    rc = object_read(&a, text, w->sink.rules, &object, &err);
    if (rc == 0)
        rc = fn(w->sink.arg, w->sink.kind, object);
    else if (rc != -ENOMEM)
        log_warn("object skipped", "kind=%s object=%.*s/%.*s cause=\"%s\"",
                 kube_kind_name(w->kind), ns.n < 64 ? (int)ns.n : 0, ns.p,
                 name.n < 254 ? (int)name.n : 0, name.p, err.text);
    arena_release(&a);
    return rc == -ENOMEM ? rc : 0;
}

/* --- list ------------------------------------------------------------------------- */

static int read_resume(struct watcher *w, struct json_span meta, struct err *err)
{
    struct node *tree;
    const char *resume;
    struct arena a;
    int rc;

    arena_init(&a, MAX_META_BYTES);
    rc = json_read(&a, meta.p, meta.n, &tree, err);
    if (rc == 0) {
        resume = node_str(tree, "continue");
        mem_free(w->resume);
        w->resume = resume && *resume ? mem_strdup(resume) : NULL;
        if (resume && *resume && !w->resume)
            rc = err_set(err, -ENOMEM, "out of memory");
    }
    arena_release(&a);
    return rc;
}

static int read_page(struct watcher *w, const struct kube_reply *r, struct err *err)
{
    struct json_span list = {r->body, r->n}, key, item;
    struct json_span found = json_find(list, "items");
    struct json_walk items;
    int more;

    if (w->sink.is_metadata && found.n == 4 && memcmp(found.p, "null", 4) == 0)
        found = (struct json_span){"[]", 2}; /* an empty list of metadata is null */
    if (json_walk(&items, found) < 0 || items.close != ']')
        return err_set(err, -EINVAL, "the list has no items");
    if (!w->resume) {
        check_version(w, list);
        w->sink.begin_list(w->sink.arg, w->sink.kind);
    }
    while ((more = json_walk_next(&items, &key, &item)) > 0) {
        if (watcher_give_object(w, item, w->sink.put) < 0)
            return err_set(err, -ENOMEM, "out of memory");
    }
    if (more < 0)
        return err_set(err, more, "the list is truncated or not JSON");
    set_version(w, list);
    more = read_resume(w, json_find(list, "metadata"), err);
    if (more == 0 && !w->resume && w->sink.end_list(w->sink.arg, w->sink.kind) < 0)
        return err_set(err, -ENOMEM, "out of memory");
    return more;
}

/* Logged once, retried with back-off. If the definition was deleted, so were
 * all objects of the kind; if only the right is missing, they still exist. */
static void kind_unknown(struct watcher *w, bool is_forbidden)
{
    char why[192];

    if (is_forbidden)
        (void)snprintf(why, sizeof(why),
                       "%ss cannot be listed: a deleted one is not recreated at once; "
                       "apply manifests/rbac",
                       kube_kind_name(w->kind));
    else
        (void)snprintf(why, sizeof(why), "the API server does not know %ss%s%s",
                       kube_kind_name(w->kind),
                       w->sink.is_metadata ? "" : ": apply manifests/crd",
                       w->kind == KUBE_MPIJOB ? "/mpijob" : "");
    if (w->is_synced && !is_forbidden) {
        w->list_version = 0;
        w->sink.begin_list(w->sink.arg, w->sink.kind);
        if (w->sink.end_list(w->sink.arg, w->sink.kind) < 0) {
            watcher_step(w, REFL_ERROR, "out of memory");
            return;
        }
    }
    if (!w->is_absent)
        log_warn("kind not served, retrying from time to time", "kind=%s cause=\"%s\"",
                 kube_kind_name(w->kind), why);
    w->is_absent = true;
    watcher_step(w, REFL_ERROR, why);
}

/* Whether the same page can be requested again, instead of the whole list. The server
 * keeps the position for some minutes; after that it answers 410. */
static bool can_retry_page(const struct kube_answer *a)
{
    return a->cls == ANSWER_THROTTLED || a->cls == ANSWER_UNAVAILABLE;
}

static void on_page(void *arg, const struct kube_reply *r)
{
    struct watcher *w = arg;
    struct err err = ERR_INIT;
    bool is_first = !w->resume;

    w->is_open = false;
    if (r->answer.cls == ANSWER_OK && read_page(w, r, &err) == 0) {
        w->received_ns = clock_now_ns();
        if (w->resume)
            return; /* watcher_tick requests the next page */
        w->is_synced = true;
        w->is_absent = false;
        w->page_limit = PAGE_LIMIT;
        (void)malloc_trim(0); /* memory use peaks during a list */
        watcher_step(w, REFL_LISTED, "");
        if (w->is_stale && !w->is_relisting) /* started before the request */
            watcher_step(w, REFL_EXPIRED, "all of it is read again");
        w->is_stale = w->is_stale && !w->is_relisting;
        return;
    }
    if (r->error == -E2BIG && w->page_limit > 1)
        w->page_limit = w->page_limit > PAGE_SHRINK ? w->page_limit / PAGE_SHRINK : 1u;
    else if (!can_retry_page(&r->answer)) {
        mem_free(w->resume);
        w->resume = NULL;
    }
    if (r->answer.cls == ANSWER_GONE)
        watcher_step(w, REFL_EXPIRED, "the list's continue token has expired");
    else if (r->answer.cls == ANSWER_NOT_FOUND && w->is_optional && is_first)
        kind_unknown(w, false);
    else if (r->answer.cls == ANSWER_FORBIDDEN && w->sink.is_metadata && is_first)
        kind_unknown(w, true);
    else
        watcher_step(w, REFL_ERROR, err.code ? err.text : r->answer.message);
}

static int start_list(struct watcher *w, struct err *err)
{
    struct kube_request rq = {.method = "GET",
                              .kind = w->kind,
                              .ns = w->ns,
                              .is_metadata = w->sink.is_metadata,
                              .done = on_page,
                              .arg = w};
    struct strbuf query;
    char limit[16];
    int rc;

    if (!w->resume)
        w->is_relisting = w->is_stale;
    (void)snprintf(limit, sizeof(limit), "%u", w->page_limit);
    strbuf_init(&query, 8192);
    kube_query(&query, "limit", limit);
    kube_query(&query, "labelSelector", w->selector);
    kube_query(&query, "continue", w->resume);
    rq.query = strbuf_str(&query);
    rc = strbuf_status(&query) ? err_set(err, -ENOMEM, "query too long")
                               : kube_submit(w->kube, &rq, err);
    strbuf_release(&query);
    return rc;
}

/* --- watch ------------------------------------------------------------------------ */

static int on_error(struct watcher *w, struct json_span object)
{
    struct node *status = NULL;
    const char *message = NULL;
    struct arena a;

    arena_init(&a, MAX_META_BYTES);
    if (json_read(&a, object.p, object.n, &status, NULL) == 0)
        message = node_str(status, "message");
    w->has_expired = node_int(status, "code", 0) == 410;
    (void)snprintf(w->trouble, sizeof(w->trouble), "%s",
                   message ? message : "the watch sent an error");
    arena_release(&a);
    return -ECANCELED;
}

static char *text_at(struct json_span object, const char *key)
{
    struct json_span s = json_find_text(json_find(object, "metadata"), key);

    return mem_strndup(s.p, s.n);
}

static int drop_object(struct watcher *w, struct json_span object)
{
    AUTOFREE char *ns = text_at(object, "namespace");
    AUTOFREE char *name = text_at(object, "name");

    if (w->sink.lose)
        return watcher_give_object(w, object, w->sink.lose);
    if (!ns || !name)
        return -ENOMEM; /* an absent one is "" */
    return w->sink.drop(w->sink.arg, w->sink.kind, ns, name);
}

static int watch_on_event(struct watcher *w, struct json_span event)
{
    struct json_span type = json_find_text(event, "type");
    struct json_span object = json_find(event, "object");
    int rc = 0;

    if (type.n == 0 || object.n == 0)
        return -EBADMSG;
    if (span_is(type, "ERROR"))
        return on_error(w, object);
    if (!span_is(type, "BOOKMARK")) {
        w->n_events++;
        rc = span_is(type, "DELETED") ? drop_object(w, object)
                                      : watcher_give_object(w, object, w->sink.put);
    }
    if (rc == 0)
        set_version(w, object);
    return rc;
}

static int watch_on_line(void *arg, const char *line, size_t n)
{
    struct watcher *w = arg;
    int rc;

    rc = watch_on_event(w, (struct json_span){line, n});
    if (rc == -EBADMSG) {
        (void)snprintf(w->trouble, sizeof(w->trouble),
                       "the watch sent a line that is not an event");
        w->has_expired = ++w->n_bad_lines % MAX_BAD_LINES == 0;
        return rc;
    }
    w->n_bad_lines = 0;
    w->n_seen_this_watch += rc == 0;
    w->n_silent = 0;
    w->received_ns = clock_now_ns();
    return rc;
}

static void watch_on_opened(void *arg)
{
    struct watcher *w = arg;

    w->received_ns = w->opened_ns = clock_now_ns();
    w->has_opened = true;
}

static void on_watch_end(void *arg, const struct kube_reply *r)
{
    struct watcher *w = arg;
    char why[sizeof(w->trouble)];

    (void)snprintf(why, sizeof(why), "%.255s",
                   *w->trouble ? w->trouble : r->answer.message);
    if (w->has_expired || r->answer.cls == ANSWER_GONE)
        watcher_step(w, REFL_EXPIRED, "the watch's resourceVersion has expired");
    else if (r->answer.cls == ANSWER_OK)
        watcher_step(w, REFL_WATCH_END, "the watch ended at once");
    else
        watcher_step(w, REFL_ERROR, why);
}

static int start_watch(struct watcher *w, struct err *err)
{
    struct kube_watch spec = {.kind = w->kind,
                              .ns = w->ns,
                              .is_metadata = w->sink.is_metadata,
                              .idle_ms = w->idle_ms,
                              .opened = watch_on_opened,
                              .line = watch_on_line,
                              .done = on_watch_end,
                              .arg = w};
    struct strbuf query;
    char seconds[16];
    int rc;

    (void)snprintf(seconds, sizeof(seconds), "%u", 300u + watcher_random32() % 300u);
    strbuf_init(&query, 8192);
    kube_query(&query, "watch", "1");
    kube_query(&query, "allowWatchBookmarks", "true");
    kube_query(&query, "resourceVersion", w->resource_version);
    kube_query(&query, "timeoutSeconds", seconds);
    kube_query(&query, "labelSelector", w->selector);
    spec.query = strbuf_str(&query);
    w->has_opened = false;
    w->has_expired = false;
    w->trouble[0] = '\0';
    w->n_seen_this_watch = 0;
    rc = strbuf_status(&query) ? err_set(err, -ENOMEM, "query too long")
                               : kube_watch(w->kube, &spec, err);
    strbuf_release(&query);
    return rc;
}

void watcher_relist(struct watcher *w)
{
    w->is_stale = true;
    w->is_relisting = false;
    switch (w->refl.state) {
    case REFL_LISTING: /* on_page repeats this list when it is complete */
        return;
    case REFL_BACKOFF:
        w->refl.need_list = 1;
        return;
    case REFL_WATCHING:
        kube_watch_cancel(w->kube, w);
        watcher_step(w, REFL_EXPIRED, "all of it is read again");
        return;
    }
}

void watcher_tick(struct watcher *w, uint64_t now_ns)
{
    struct err err = ERR_INIT;
    int rc = 0;

    if (w->refl.state == REFL_BACKOFF && now_ns >= w->refl.wake_ns)
        watcher_step(w, REFL_TIMER, "");
    if (w->is_open || w->refl.state == REFL_BACKOFF)
        return;
    if (w->refl.state == REFL_WATCHING && now_ns < kube_paused_ns(w->kube))
        return;
    w->is_open = true;
    switch (w->refl.state) {
    case REFL_LISTING:
        rc = start_list(w, &err);
        break;
    case REFL_WATCHING:
        rc = start_watch(w, &err);
        break;
    case REFL_BACKOFF:
        return;
    }
    if (rc < 0)
        watcher_step(w, REFL_ERROR, err.text);
}

uint64_t watcher_next_ns(const struct watcher *w)
{
    if (w->refl.state == REFL_BACKOFF)
        return w->refl.wake_ns;
    if (w->is_open)
        return UINT64_MAX;
    return w->refl.state == REFL_WATCHING ? kube_paused_ns(w->kube) : 0;
}
