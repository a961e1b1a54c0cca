/* SPDX-License-Identifier: Apache-2.0 */
/* Queries of the page that need others:
 *
 *   page_fetch_start --> page_share (equal ones share) --> work --> page_list.c     Events
 *                              ^                             |----> page_agent.c    agent
 *                              |                             |----> page_pod_log.c  log
 *                              '------ page_work_end <-------'----> here            job
 *
 * Invariants
 *  1. Viewers cannot slow the operator down: of the client's requests in flight at most
 *     KUBE_AT_ONCE are of the page, KUBE_QPS of them begin each second, and each ends
 *     soon. Only one is a list of Events: for each the API server reads all Events of
 *     the namespace, and three at a time kept it from serving the operator.
 *  2. A work ends once, after WORK_NS at the latest. The client's requests cannot be
 *     cancelled: a work that ended before its answer stays in the list, without item,
 *     until then.
 *  3. What others sent is bounded, and becomes text.
 * Called by page.c and page_http.c. */
#include "operator/page/page_fetch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "operator/ask.h"
#include "operator/kube/limit.h"
#include "operator/page/page_work.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"

#define KUBE_AT_ONCE    3u /* of the client's 8 */
#define KUBE_QPS        5u
#define KUBE_BURST      15u
#define KUBE_TIMEOUT_MS 10000u
#define WORK_NS         (20 * NS_PER_S)

struct page_fetch {
    struct controller *op;
    struct page_share *share;
    struct page_work *works;
    struct limit limit;
    unsigned n_sent, n_lists; /* of these, lists of Events */
};

int page_fetch_new(struct controller *op, struct page_fetch **ret)
{
    struct page_fetch *f = mem_zalloc(sizeof(*f));

    if (!f)
        return -ENOMEM;
    f->op = op;
    f->share = page_share_new();
    if (!f->share) {
        mem_free(f);
        return -ENOMEM;
    }
    limit_init(&f->limit, KUBE_QPS, KUBE_BURST, clock_now_ns());
    *ret = f;
    return 0;
}

/* What only an open query needs. */
static void work_release(struct page_work *w)
{
    if (w->is_asking)
        ask_query_cancel(w->op->ask, w);
    w->is_asking = w->is_due = false;
    page_events_free(w->events);
    w->events = NULL;
    strbuf_release(&w->out);
    arena_release(&w->arena);
}

void page_fetch_free(struct page_fetch *f)
{
    while (f && f->works) {
        struct page_work *w = f->works;

        f->works = w->next;
        work_release(w);
        mem_free(w);
    }
    if (f)
        page_share_free(f->share);
    mem_free(f);
}

static void work_free(struct page_work *w)
{
    struct page_work **p = &w->fetch->works;

    while (*p != w)
        p = &(*p)->next;
    *p = w->next;
    mem_free(w);
}

/* --- ends ------------------------------------------------------------------------- */

static void work_close(struct page_work *w, int http, struct strbuf *body)
{
    struct page_fetch *f = w->fetch;
    struct page_item *item = w->item;
    size_t n = body->n;
    char *text = strbuf_take(body);

    strbuf_release(body);
    work_release(w);
    w->item = NULL;
    if (!w->is_sent)
        work_free(w);
    page_share_end(f->share, item, clock_now_ns(), http, text, n);
}

void page_work_end(struct page_work *w, struct strbuf *body)
{
    work_close(w, 200, body);
}

void page_work_fail(struct page_work *w, int http, const char *why)
{
    struct strbuf body;

    log_debug("the page's query failed", "job=%s http=%d cause=\"%s\"", w->q->key, http,
              why);
    strbuf_init(&body, PAGE_BODY_MAX);
    page_body_error(why, &body);
    work_close(w, http, &body);
}

void page_work_fail_reply(struct page_work *w,
                          const struct kube_reply *r,
                          const char *what)
{
    char why[1200];
    int http = 502;

    if (r->error == -EPERM)
        http = 503;
    else if (r->error == -ETIMEDOUT)
        http = 504;
    else if (r->answer.cls == ANSWER_NOT_FOUND || r->answer.cls == ANSWER_INVALID)
        http = 404;
    else if (r->answer.cls == ANSWER_THROTTLED)
        http = 503;
    if (r->error == -EPERM || r->error == -E2BIG || r->answer.http > 0)
        (void)snprintf(why, sizeof(why), "%s: %s", what, r->answer.message);
    else /* its address is of no use to a viewer */
        (void)snprintf(why, sizeof(why), "%s: the API server did not answer", what);
    page_work_fail(w, http, why);
}

/* --- requests to the API server --------------------------------------------------- */

const char *page_work_query(struct page_work *w, const char *const *pairs)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};

    strbuf_init(&b, 2 * PAGE_CONTINUE_SIZE);
    for (; pairs[0]; pairs += 2)
        kube_query(&b, pairs[0], pairs[1]);
    return strbuf_status(&b) == 0 ? arena_strdup(&w->arena, strbuf_str(&b)) : NULL;
}

static void on_kube_reply(void *arg, const struct kube_reply *r)
{
    struct page_work *w = arg;

    w->is_sent = false;
    w->fetch->n_sent--;
    w->fetch->n_lists -= w->rq.kind == KUBE_EVENT;
    if (w->item)
        w->reply(w, r);
    else
        work_free(w);
}

void page_work_get(struct page_work *w,
                   const struct kube_request *rq,
                   page_reply_fn reply)
{
    w->rq = *rq;
    w->rq.method = "GET";
    w->rq.timeout_ms = KUBE_TIMEOUT_MS;
    w->rq.done = on_kube_reply;
    w->rq.arg = w;
    w->reply = reply;
    w->is_due = true;
}

static void work_send(struct page_work *w)
{
    struct err err = ERR_INIT;

    w->is_due = false;
    if (kube_submit(w->op->kube, &w->rq, &err) < 0) {
        page_work_fail(w, 503, err.text);
        return;
    }
    w->is_sent = true;
    w->fetch->n_sent++;
    w->fetch->n_lists += w->rq.kind == KUBE_EVENT;
}

/* --- begins ----------------------------------------------------------------------- */

static void on_job_text(struct page_work *w, const struct kube_reply *r)
{
    struct strbuf body;

    if (r->answer.cls != ANSWER_OK) {
        page_work_fail_reply(w, r, "job");
        return;
    }
    strbuf_init(&body, r->n + 1);
    strbuf_add(&body, r->body, r->n);
    page_work_end(w, &body);
}

static void work_get_job(struct page_work *w)
{
    const struct kube_request rq = {
        .kind = w->job.kind, .ns = w->job.ns, .name = w->job.name};

    page_work_get(w, &rq, on_job_text);
}

static void work_begin(struct page_work *w)
{
    struct job_text text;
    const char *uid;

    if (!controller_leads(w->op)) {
        page_work_fail(w, 503, "this operator does not lead");
        return;
    }
    if (store_job_text(w->op->store, w->q->key, &text) == -ENOENT) {
        page_work_fail(w, 404, "no such job");
        return;
    }
    uid = arena_strdup(&w->arena, text.uid);
    if (!uid || store_key_meta(w->q->key, &w->arena, &w->job) < 0) {
        page_work_fail(w, 503, "out of memory");
        return;
    }
    w->job.uid = uid;
    switch (w->q->what) {
    case PAGE_EVENTS:
        page_list_begin(w);
        return;
    case PAGE_RANKS:
    case PAGE_STACKS:
        page_agent_begin(w);
        return;
    case PAGE_LOG:
        page_pod_log_begin(w);
        return;
    case PAGE_JOB:
        work_get_job(w);
        return;
    }
}

static void page_fetch_begin(struct page_fetch *f)
{
    struct page_item *item;

    while ((item = page_share_take(f->share))) {
        struct page_work *w = mem_zalloc(sizeof(*w));

        if (!w) {
            page_share_end(f->share, item, clock_now_ns(), 503, NULL, 0);
            continue;
        }
        w->fetch = f;
        w->op = f->op;
        w->item = item;
        w->q = page_item_query(item);
        w->deadline_ns = clock_now_ns() + WORK_NS;
        arena_init(&w->arena, PAGE_ARENA_BYTES);
        w->next = f->works;
        f->works = w;
        work_begin(w);
    }
}

void page_fetch_start(struct page_fetch *f,
                      const struct page_query *q,
                      page_fetch_fn fn,
                      void *arg)
{
    static const char busy[] = "{\"error\":\"too many queries wait\"}";
    static const char out_of_memory[] = "{\"error\":\"out of memory\"}";
    int rc = page_share_ask(f->share, q, clock_now_ns(), fn, arg);

    if (rc == -EAGAIN)
        fn(arg, 429, busy, sizeof(busy) - 1);
    else if (rc < 0)
        fn(arg, 503, out_of_memory, sizeof(out_of_memory) - 1);
    page_fetch_begin(f);
}

void page_fetch_cancel(struct page_fetch *f, const void *arg)
{
    page_share_cancel(f->share, arg);
}

/* --- the loop --------------------------------------------------------------------- */

static struct page_work *page_fetch_late(const struct page_fetch *f, uint64_t now_ns)
{
    struct page_work *w = f->works;

    while (w && !(w->item && now_ns >= w->deadline_ns))
        w = w->next;
    return w;
}

/* The oldest is the last of the list. */
static struct page_work *page_fetch_due(const struct page_fetch *f)
{
    struct page_work *due = NULL;

    for (struct page_work *w = f->works; w; w = w->next) {
        if (w->is_due && (w->rq.kind != KUBE_EVENT || f->n_lists == 0))
            due = w;
    }
    return f->n_sent < KUBE_AT_ONCE ? due : NULL;
}

void page_fetch_tick(struct page_fetch *f, uint64_t now_ns)
{
    struct page_work *w;

    while ((w = page_fetch_late(f, now_ns)))
        page_work_fail(w, 504, "no answer in time");
    page_fetch_begin(f);
    while ((w = page_fetch_due(f)) && limit_take(&f->limit, now_ns))
        work_send(w);
}

uint64_t page_fetch_next_ns(const struct page_fetch *f)
{
    uint64_t next = page_fetch_due(f) ? limit_ready_ns(&f->limit) : UINT64_MAX;

    for (const struct page_work *w = f->works; w; w = w->next) {
        if (w->item)
            next = earlier_ns(next, w->deadline_ns);
    }
    return next;
}
