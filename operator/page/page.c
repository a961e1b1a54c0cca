/* SPDX-License-Identifier: Apache-2.0 */
/* The status page: which request needs which right, and what answers it.
 *
 *   request -> route -> [rights, one after the other: page_access] -> rows     page_table
 *                                                                  -> one job  page_job
 *                                                                  -> stream   page_stream
 *                                                                  -> Events, log, ranks,
 *                                                                     stacks   page_fetch
 *   store --each change of a job--> page_table          ask --every 15 s--> its history
 *
 * Only the leader answers: others have no reports, and lists that may lag. */
#include "operator/page/page.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "operator/ask.h"
#include "operator/page/core/page_assets.h"
#include "operator/page/page_job.h"
#include "operator/page/page_viewer.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"

#define HISTORY_NS (PAGE_HISTORY_S * NS_PER_S)
#define TICK_NS    NS_PER_S
#define REVIEW_NS  (20 * NS_PER_S) /* for the checks of one request */

/* --- rights ------------------------------------------------------------------------- */

static struct page_right
right_of_jobs(enum kube_kind kind, const char *verb, const char *ns)
{
    bool is_mpi = kind == KUBE_MPIJOB;

    return (struct page_right){.verb = verb,
                               .group = is_mpi ? "kubeflow.org" : "ringmaster.dev",
                               .resource = is_mpi ? "mpijobs" : "horovodjobs",
                               .subresource = "",
                               .ns = ns,
                               .name = ""};
}

bool viewer_right(const struct page_viewer *v, size_t i, struct page_right *ret)
{
    const struct page_route *r = &v->route;
    struct page_right events = {"list", "", "events", "", r->ns, ""};
    struct page_right log = {"get", "", "pods", "log", r->ns, ""};

    switch (r->what) {
    case PAGE_GET_JOBS:
    case PAGE_GET_WATCH:
        *ret = right_of_jobs(i == 0 ? KUBE_JOB : KUBE_MPIJOB, "list", r->ns);
        return i < 2;
    case PAGE_GET_JOB:
        *ret = i == 0 ? right_of_jobs(r->kind, "get", r->ns) : i == 1 ? events : log;
        if (i == 0)
            ret->name = r->name;
        return i < 3;
    case PAGE_GET_EVENTS:
        *ret = events;
        return i < 1;
    case PAGE_GET_RANKS:
    case PAGE_GET_STACKS:
    case PAGE_GET_LOG:
        *ret = log;
        return i < 1;
    case PAGE_GET_HTML:
    case PAGE_GET_CSS:
    case PAGE_GET_JS:
        break;
    }
    return false;
}

/* --- answers ------------------------------------------------------------------------ */

static void viewer_send(struct page_viewer *v, int http, struct page_text *t)
{
    struct page_answer a = {.status = http, .closes = http == 503};

    if (t)
        page_call_answer(v->call, &a, t);
    else
        page_call_refuse(v->call, 503, "out of memory");
    page_text_unref(t);
}

void viewer_answer_text(struct page_viewer *v, int http, const char *body, size_t n)
{
    viewer_send(v, http, page_text_new(body, n));
}

static void on_fetched(void *arg, int http, const char *body, size_t n)
{
    viewer_answer_text(arg, http, body, n);
}

static void viewer_fetch(struct page_viewer *v, enum page_fetch_what what)
{
    struct page_query q = {.what = what, .rank = v->route.rank, .tail = v->route.tail};
    char key[STORE_KEY_SIZE];

    q.key = key;
    if (store_key(v->route.kind, v->route.ns, v->route.name, key) < 0)
        page_call_refuse(v->call, 404, "no such job");
    else
        page_fetch_start(v->page->fetch, &q, on_fetched, v);
}

static void viewer_answer_rows(struct page_viewer *v)
{
    struct page_scope scope = viewer_scope(v);

    viewer_send(v, 200, streams_rows(v->page, &scope));
}

static void viewer_answer(struct page_viewer *v)
{
    switch (v->route.what) {
    case PAGE_GET_JOBS:
        viewer_answer_rows(v);
        return;
    case PAGE_GET_WATCH:
        stream_begin(v);
        return;
    case PAGE_GET_JOB:
        page_job_answer(v);
        return;
    case PAGE_GET_EVENTS:
        viewer_fetch(v, PAGE_EVENTS);
        return;
    case PAGE_GET_RANKS:
        viewer_fetch(v, PAGE_RANKS);
        return;
    case PAGE_GET_STACKS:
        viewer_fetch(v, PAGE_STACKS);
        return;
    case PAGE_GET_LOG:
        viewer_fetch(v, PAGE_LOG);
        return;
    case PAGE_GET_HTML:
    case PAGE_GET_CSS:
    case PAGE_GET_JS:
        break;
    }
}

/* --- checks ------------------------------------------------------------------------- */

/* Of the rights to lists, one suffices; the first one of any other request is required. */
static bool viewer_is_allowed(const struct page_viewer *v)
{
    bool is_list = v->route.what == PAGE_GET_JOBS || v->route.what == PAGE_GET_WATCH;

    return v->is_allowed[0] || (is_list && v->is_allowed[1]);
}

static void viewer_checked(struct page_viewer *v)
{
    v->is_checking = false;
    if (v->is_stream)
        stream_checked(v);
    else if (v->refusal && (v->refusal != 403 || !viewer_is_allowed(v)))
        page_call_refuse(v->call, v->refusal, v->why);
    else if (!controller_may_act(v->page->op))
        page_call_refuse(v->call, 503, "this operator does not lead any more");
    else
        viewer_answer(v);
}

static void viewer_check_next(struct page_viewer *v);

static void on_access(void *arg, int http, const char *why)
{
    struct page_viewer *v = arg;

    v->is_allowed[v->n_checked++] = http == 200;
    if (http != 200 && (!v->refusal || v->refusal == 403)) {
        if (!v->refusal || http != 403)
            (void)snprintf(v->why, sizeof(v->why), "%s", why);
        v->refusal = http;
    }
    viewer_check_next(v);
}

static void viewer_check_next(struct page_viewer *v)
{
    struct page_right right;

    /* anything but a missing right ends the checks */
    if ((v->refusal && v->refusal != 403) || !viewer_right(v, v->n_checked, &right))
        viewer_checked(v);
    else
        page_access_check(v->page->access, v->call->token, &right, on_access, v);
}

void viewer_check(struct page_viewer *v)
{
    v->is_checking = true;
    v->checking_ns = clock_now_ns();
    memset(v->is_allowed, 0, sizeof(v->is_allowed));
    v->n_checked = 0;
    v->refusal = 0;
    viewer_check_next(v);
}

/* --- requests ----------------------------------------------------------------------- */

static void answer_asset(struct page_call *c, const struct page_asset *asset)
{
    bool is_known = c->etag && strcmp(c->etag, asset->etag) == 0;
    struct page_answer a = {.status = is_known ? 304 : 200,
                            .content_type = asset->content_type,
                            .etag = asset->etag};
    struct page_text *t = page_text_new(asset->bytes, is_known ? 0 : asset->n);

    page_call_answer(c, &a, t);
    page_text_unref(t);
}

static void on_open(void *arg, struct page_call *c)
{
    struct page *p = arg;
    struct err err = ERR_INIT;
    struct page_asset asset;
    struct page_route route;
    struct page_viewer *v;
    int rc;

    if (strcmp(c->method, "GET") != 0) {
        page_call_refuse(c, 405, "only GET is allowed: the page is read-only");
        return;
    }
    if (page_asset_find(c->path, &asset)) {
        answer_asset(c, &asset);
        return;
    }
    rc = page_route_parse(c->path, c->query, &route, &err);
    if (rc < 0) {
        page_call_refuse(c, rc == -ENOENT ? 404 : 400, err.text);
        return;
    }
    if (!controller_may_act(p->op)) {
        page_call_refuse(c, 503,
                         controller_leads(p->op)
                             ? "the operator's caches are being filled"
                             : "this operator does not lead");
        return;
    }
    v = mem_zalloc(sizeof(*v));
    if (!v) {
        page_call_refuse(c, 503, "out of memory");
        return;
    }
    v->page = p;
    v->call = c;
    v->route = route;
    v->next = p->viewers;
    if (v->next)
        v->next->prev = v;
    p->viewers = v;
    p->tick_ns = earlier_ns(p->tick_ns, clock_now_ns() + TICK_NS);
    c->owner = v;
    viewer_check(v);
}

static void on_closed(void *arg, struct page_call *c)
{
    struct page *p = arg;
    struct page_viewer *v = c->owner;

    if (!v)
        return;
    page_access_cancel(p->access, v);
    page_fetch_cancel(p->fetch, v);
    p->streams.n -= v->is_stream;
    *(v->prev ? &v->prev->next : &p->viewers) = v->next;
    if (v->next)
        v->next->prev = v->prev;
    mem_free(v);
}

/* The API server may let reviews wait for a minute. */
static void viewer_check_late(struct page_viewer *v, uint64_t now_ns)
{
    if (!v->is_checking || now_ns - v->checking_ns < REVIEW_NS)
        return;
    page_access_cancel(v->page->access, v);
    v->is_checking = false;
    if (v->is_stream)
        stream_not_checked(v);
    else
        page_call_refuse(v->call, 504,
                         "the API server has not checked the token in time");
}

static void viewers_tick(struct page *p, uint64_t now_ns)
{
    if (now_ns < p->tick_ns)
        return;
    p->tick_ns = p->viewers ? now_ns + TICK_NS : UINT64_MAX;
    for (struct page_viewer *v = p->viewers; v; v = v->next)
        viewer_check_late(v, now_ns);
    streams_tick(p, now_ns);
}

/* --- rows --------------------------------------------------------------------------- */

static void on_job(void *arg, const char *key, const struct node *object)
{
    struct page *p = arg;
    int rc = page_table_put(p->table, key, object);

    if (rc < 0)
        log_debug("job is not on the page", "job=%s cause=\"%s\"", key, strerror(-rc));
}

struct noting {
    struct page *page;
    uint64_t now_s;
};

static void note_report(void *arg, const char *key, const struct live_report *r)
{
    const struct noting *n = arg;

    page_table_note(n->page->table, key, r, n->now_s);
}

static void page_note_history(struct page *p, uint64_t now_ns)
{
    struct noting n = {.page = p, .now_s = clock_wall_s()};

    if (!p->op->ask || now_ns < p->history_ns)
        return;
    p->history_ns = now_ns + HISTORY_NS;
    ask_each(p->op->ask, note_report, &n);
}

/* --- begin and end ------------------------------------------------------------------ */

int page_new(struct controller *op,
             const struct operator_options *o,
             struct page **ret,
             struct err *err)
{
    struct page_handler handler = {.open = on_open, .closed = on_closed};
    struct page *p;
    int rc = 0;

    *ret = NULL;
    if (!o->page_port)
        return 0;
    p = mem_zalloc(sizeof(*p));
    if (!p)
        return err_set(err, -ENOMEM, "out of memory");
    p->op = op;
    p->tick_ns = UINT64_MAX;
    p->check_ns = o->page_check_ms * NS_PER_MS;
    handler.arg = p;
    p->table = page_table_new();
    if (!p->table || streams_init(&p->streams) < 0
        || page_access_new(op->kube, o->page_check_ms * NS_PER_MS, &p->access) < 0
        || page_fetch_new(op, &p->fetch) < 0)
        rc = err_set(err, -ENOMEM, "out of memory");
    if (rc == 0)
        rc = page_http_new(o->page_address, (uint16_t)o->page_port, &handler, &p->http,
                           err);
    if (rc < 0) {
        page_free(p);
        return rc;
    }
    store_listen(op->store, on_job, p);
    log_info("status page", "address=%s port=%u", o->page_address, o->page_port);
    *ret = p;
    return 0;
}

void page_free(struct page *p)
{
    if (!p)
        return;
    store_listen(p->op->store, NULL, NULL);
    page_http_free(p->http);
    page_fetch_free(p->fetch);
    page_access_free(p->access);
    streams_release(&p->streams);
    page_table_free(p->table);
    mem_free(p);
}

int page_fd(const struct page *p)
{
    return page_http_fd(p->http);
}

uint64_t page_next_ns(const struct page *p, uint64_t now_ns)
{
    uint64_t next = earlier_ns(page_http_next_ns(p->http, now_ns), p->tick_ns);

    next = earlier_ns(next, page_fetch_next_ns(p->fetch));
    next = earlier_ns(next, page_access_next_ns(p->access));
    return p->op->ask ? earlier_ns(next, p->history_ns) : next;
}

void page_tick(struct page *p, uint64_t now_ns)
{
    page_note_history(p, now_ns);
    viewers_tick(p, now_ns);
    page_fetch_tick(p->fetch, now_ns);
    page_access_tick(p->access, now_ns);
}

static void page_count(struct page *p)
{
    struct page_figures *f = &p->op->metrics.page;

    f->connections = page_http_n_clients(p->http);
    f->streams = p->streams.n;
    page_access_count(p->access, &f->reviews, &f->kept);
}

void page_run(struct page *p, uint64_t now_ns)
{
    page_http_run(p->http, now_ns);
    page_count(p);
}
