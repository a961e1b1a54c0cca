/* SPDX-License-Identifier: Apache-2.0 */
/* What the page shows of one job beyond the operator's cache: Events and logs from the API
 * server, ranks and stacks from worker 0's agent. Each answer is bounded, and shared by
 * viewers that ask within PAGE_SHARE_NS. The caller has checked the viewer's right. One
 * thread; nothing blocks. */
#ifndef OPERATOR_PAGE_PAGE_FETCH_H
#define OPERATOR_PAGE_PAGE_FETCH_H

#include "operator/controller.h"

#define PAGE_SHARE_NS (3 * NS_PER_S)

struct page_fetch;
/* -ENOMEM. */
int page_fetch_new(struct controller *op, struct page_fetch **ret);
void page_fetch_free(struct page_fetch *f); /* accepts NULL; calls no one back */

enum page_fetch_what { PAGE_EVENTS, PAGE_RANKS, PAGE_STACKS, PAGE_LOG };

struct page_query {
    enum page_fetch_what what;
    const char *key; /* of the job in the store */
    int64_t rank;    /* PAGE_LOG: -1: all */
    uint32_t tail;   /* PAGE_LOG: lines */
};

/* http: 200 and the JSON of README.md; else {"error": "..."}: 404 no such job, pod or
 * rank, 429 too many wait, 502, 503, 504. body: valid during the call. */
typedef void (*page_fetch_fn)(void *arg, int http, const char *body, size_t n);

/* Calls fn exactly once, possibly before it returns. Strings are copied. */
void page_fetch_start(struct page_fetch *f,
                      const struct page_query *q,
                      page_fetch_fn fn,
                      void *arg);
/* Queries that wait with that arg are not called back any more. */
void page_fetch_cancel(struct page_fetch *f, const void *arg);

#endif
