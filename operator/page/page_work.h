/* SPDX-License-Identifier: Apache-2.0 */
/* A query in flight, for the three files that know where its answer comes from. */
#ifndef OPERATOR_PAGE_PAGE_WORK_H
#define OPERATOR_PAGE_PAGE_WORK_H

#include "operator/cli/core/job_view.h"
#include "operator/page/core/page_body.h"
#include "operator/page/core/page_events.h"
#include "operator/page/page_fetch.h"
#include "runtime/live/live_ask.h"

#define PAGE_ARENA_BYTES (48u << 20) /* of one query; mostly a few KiB */

struct page_work;
typedef void (*page_reply_fn)(struct page_work *w, const struct kube_reply *r);

struct page_work {
    struct page_work *next;
    struct page_fetch *fetch;
    struct controller *op;
    struct page_item
        *item; /* NULL: answered; the request in flight still refers to it */
    const struct page_query *q;
    uint64_t deadline_ns;
    struct arena arena; /* strings of the request, and the job */
    struct job_meta job;

    struct kube_request rq; /* to the API server */
    page_reply_fn reply;
    bool is_due, is_sent; /* it waits for its turn; for its answer */
    bool is_asking;       /* an agent, by ask_query */

    struct page_events *events; /* page_list.c */
    unsigned stage, n_pages;
    struct strbuf out;       /* page_agent.c: the answer so far */
    struct live_query query; /* the last question */
    uint32_t n_ranks;        /* in the answer so far */
    bool is_truncated;
    struct log_place place; /* page_pod_log.c */
    const char *pod;
    uint32_t lines; /* that were requested */
};

/* Each begins a query: a function below is called, now or later. */
void page_list_begin(struct page_work *w);
void page_agent_begin(struct page_work *w);
void page_pod_log_begin(struct page_work *w);

/* Requests it when it is its turn. Strings in rq must last: they are in the arena. */
void page_work_get(struct page_work *w,
                   const struct kube_request *rq,
                   page_reply_fn reply);
/* The query string in the arena: pairs of key and value, ended by NULL; pairs without a
 * value are left out. NULL: out of memory. */
const char *page_work_query(struct page_work *w, const char *const *pairs);

/* Ends: w is gone. Takes the text of body and releases it. */
void page_work_end(struct page_work *w, struct strbuf *body);
void page_work_fail(struct page_work *w, int http, const char *why);
/* The API server's answer is not what was requested. what: "events" */
void page_work_fail_reply(struct page_work *w,
                          const struct kube_reply *r,
                          const char *what);

#endif
