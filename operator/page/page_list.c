/* SPDX-License-Identifier: Apache-2.0 */
/* The Events of a job. The API server cannot select them: no field is shared by the Events
 * of a job and of its pods. Its cost of a list is that of reading all Events of the
 * namespace, whatever the selector; ours is that of the text that it sends.
 *
 *   all of the namespace, one page --complete--> done
 *        '--more--> by name of the job --> Warnings, WARNING_PAGES pages --> done, partial
 *
 * So most namespaces cost one request, and one with very many Events a few. What then is
 * missing are Normal Events of pods. Called by page_fetch.c. */
#include "operator/page/page_work.h"

#define PAGE_LIMIT    "250"
#define LIST_BYTES    (4u << 20)
#define WARNING_PAGES 4u

enum list_stage { LIST_ALL, LIST_JOB, LIST_WARNINGS };

static void on_event_list(struct page_work *w, const struct kube_reply *r);

static void list_request(struct page_work *w, const char *next)
{
    static const char *const selectors[] = {NULL,
                                            "involvedObject.name=", "type=Warning"};
    const char *selector = selectors[w->stage];
    struct kube_request rq = {
        .kind = KUBE_EVENT, .ns = w->job.ns, .max_answer = LIST_BYTES};

    if (w->stage == LIST_JOB)
        selector = arena_printf(&w->arena, "%s%s", selector, w->job.name);
    rq.query = page_work_query(w, (const char *const[]){"fieldSelector", selector,
                                                        "limit", PAGE_LIMIT, "continue",
                                                        *next ? next : NULL, NULL});
    if (!rq.query || (w->stage == LIST_JOB && !selector))
        page_work_fail(w, 503, "out of memory");
    else
        page_work_get(w, &rq, on_event_list);
}

static void list_end(struct page_work *w)
{
    struct strbuf body;

    strbuf_init(&body, PAGE_BODY_MAX);
    page_events_json(w->events, w->is_truncated, &body);
    page_work_end(w, &body);
}

static void on_event_list(struct page_work *w, const struct kube_reply *r)
{
    char next[PAGE_CONTINUE_SIZE] = "";

    if (r->answer.cls == ANSWER_GONE) { /* Events of the first pages have expired */
        list_end(w);
        return;
    }
    if (r->answer.cls != ANSWER_OK) {
        page_work_fail_reply(w, r, "events");
        return;
    }
    if (page_events_add(w->events, r->body, r->n, next) < 0) {
        page_work_fail(w, 502, "events: the API server's answer cannot be read");
        return;
    }
    if (w->stage == LIST_ALL && *next) {
        w->is_truncated = true;
        w->stage = LIST_JOB;
        list_request(w, "");
    } else if (w->stage == LIST_JOB) {
        w->stage = LIST_WARNINGS;
        list_request(w, "");
    } else if (w->stage == LIST_WARNINGS && *next && ++w->n_pages < WARNING_PAGES) {
        list_request(w, next);
    } else {
        list_end(w);
    }
}

void page_list_begin(struct page_work *w)
{
    w->events = page_events_new(w->job.name, w->job.uid);
    if (w->events)
        list_request(w, "");
    else
        page_work_fail(w, 503, "out of memory");
}
