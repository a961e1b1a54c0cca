/* SPDX-License-Identifier: Apache-2.0 */
/* The log of a rank:
 *
 *   job of the store --> pod, container --> GET pods/log --> lines of the rank
 *     '-- without pod templates --> GET job --^     ^-- fewer lines: the newest were cut off
 *
 * Called by page_fetch.c. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "operator/doc/json.h"
#include "operator/doc/object.h"
#include "operator/page/core/page_log.h"
#include "operator/page/page_work.h"
#include "runtime/base/mem.h"
#include "runtime/base/utf8.h"

#define LOG_TRIES  3u
#define LOG_MARGIN 4096u /* an answer may be a little longer than limitBytes */

static void log_request(struct page_work *w);

/* --- the answer ------------------------------------------------------------------- */

static void log_put(struct strbuf *out, const char *before, const char *text)
{
    strbuf_puts(out, before);
    utf8_put_json(text, out);
}

static void log_end(struct page_work *w, const char *p, size_t n)
{
    CLEANUP(strbuf_release) struct strbuf lines = {0};
    struct strbuf body;
    bool is_cut;

    strbuf_init(&lines, PAGE_LOG_BYTES + 2 * (size_t)LOG_MARGIN);
    page_log_filter(p, n, w->q->rank, w->q->tail, &lines);
    strbuf_init(&body, PAGE_BODY_MAX);
    log_put(&body, "{\"pod\":\"", w->pod);
    log_put(&body, "\",\"container\":\"", w->place.container ? w->place.container : "");
    strbuf_puts(&body, "\",\"text\":");
    is_cut = page_body_text(strbuf_str(&lines), lines.n, &body);
    strbuf_puts(&body, is_cut ? ",\"truncated\":true}" : "}");
    if (strbuf_status(&lines) < 0)
        body.status = strbuf_status(&lines);
    page_work_end(w, &body);
}

static void on_log(struct page_work *w, const struct kube_reply *r)
{
    uint32_t fewer;

    if (r->answer.cls != ANSWER_OK) {
        page_work_fail_reply(w, r, "log");
        return;
    }
    fewer = page_log_fewer(r->body, r->n, w->lines);
    if (fewer > 0 && ++w->n_pages < LOG_TRIES) {
        w->lines = fewer;
        log_request(w);
        return;
    }
    log_end(w, r->body, r->n);
}

/* --- the request ------------------------------------------------------------------ */

static void log_request(struct page_work *w)
{
    struct kube_request rq = {.kind = KUBE_POD,
                              .ns = w->job.ns,
                              .name = w->pod,
                              .sub = "log",
                              .is_text = true,
                              .max_answer = PAGE_LOG_BYTES + LOG_MARGIN};
    char lines[16], bytes[16];

    (void)snprintf(lines, sizeof(lines), "%u", w->lines);
    (void)snprintf(bytes, sizeof(bytes), "%u", PAGE_LOG_BYTES);
    rq.query = page_work_query(w, (const char *const[]){"container", w->place.container,
                                                        "tailLines", lines,
                                                        "limitBytes", bytes, NULL});
    if (!rq.query)
        page_work_fail(w, 503, "out of memory");
    else
        page_work_get(w, &rq, on_log);
}

/* The newest pod of the launcher; NULL: there is none. */
static const struct pod *launcher_pod(const struct page_work *w)
{
    const struct pod *p, *newest = NULL;
    struct keyed_range at = {0};

    while ((p = store_next_pod(w->op->store, &w->job, &at))) {
        if (p->role == ROLE_LAUNCHER && store_owns_pod(w->op->store, &w->job, p)
            && (!newest || p->made_wall_us >= newest->made_wall_us))
            newest = p;
    }
    return newest;
}

static void log_find_pod(struct page_work *w)
{
    const struct pod *p;

    if (w->place.role == ROLE_WORKER) {
        w->pod = arena_printf(&w->arena, "%s-worker-%u", w->job.name, w->place.index);
    } else {
        p = launcher_pod(w);
        if (!p) {
            page_work_fail(w, 404, "log: the launcher has no pod now");
            return;
        }
        w->pod = arena_strdup(&w->arena, p->name);
    }
    if (!w->pod)
        page_work_fail(w, 503, "out of memory");
    else
        log_request(w);
}

static void log_use_job(struct page_work *w, struct node *object)
{
    struct build b = {.arena = &w->arena};
    struct err err = ERR_INIT;
    struct job_view v;
    int rc;

    /* items of lists have neither */
    node_set_str(&b, object, "apiVersion", kube_api_version(w->job.kind));
    node_set_str(&b, object, "kind", kube_kind_name(w->job.kind));
    rc = b.status ? b.status : job_view_make(&b, object, &v);
    if (rc < 0) {
        page_work_fail(w, rc == -ENOMEM ? 503 : 502, "log: the job cannot be read");
        return;
    }
    if (log_place_find(&v, w->q->rank, &w->place, &err) < 0) {
        (void)err_prefix(&err, "rank");
        page_work_fail(w, 404, err.text);
        return;
    }
    w->lines = page_log_lines(w->q->tail, w->place.n_ranks, w->q->rank >= 0);
    log_find_pod(w);
}

static void on_job(struct page_work *w, const struct kube_reply *r)
{
    struct node *object;
    struct arena a;
    int rc;

    if (r->answer.cls != ANSWER_OK) {
        page_work_fail_reply(w, r, "job");
        return;
    }
    arena_init(&a, OBJECT_MAX_BYTES);
    rc = object_read(&a, (struct json_span){r->body, r->n}, job_rules, &object, NULL);
    if (rc < 0)
        page_work_fail(w, 502, "job: the API server's answer cannot be read");
    else {
        struct build b = {.arena = &w->arena};
        struct node *copy = node_copy(&b, object);

        if (copy)
            log_use_job(w, copy);
        else
            page_work_fail(w, 503, "out of memory");
    }
    arena_release(&a);
}

void page_pod_log_begin(struct page_work *w)
{
    struct kube_request rq = {
        .kind = w->job.kind, .ns = w->job.ns, .name = w->job.name};
    struct job_text text;
    struct node *object;

    if (store_job_text(w->op->store, w->q->key, &text) == 0 && !text.is_at_rest
        && json_read(&w->arena, text.p, text.n, &object, NULL) == 0)
        log_use_job(w, object);
    else
        page_work_get(w, &rq, on_job);
}
