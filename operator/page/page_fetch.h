/* SPDX-License-Identifier: Apache-2.0 */
/* What the page shows of one job beyond the operator's cache: Events, logs, and the text of
 * a job that the store has not kept, from the API server, ranks and stacks from worker 0's agent. Each answer is bounded, and shared by
 * viewers that ask within PAGE_SHARE_NS. The caller has checked the viewer's right. One
 * thread; nothing blocks. */
#ifndef OPERATOR_PAGE_PAGE_FETCH_H
#define OPERATOR_PAGE_PAGE_FETCH_H

#include "operator/controller.h"
#include "operator/page/core/page_share.h"

struct page_fetch;
/* -ENOMEM. */
int page_fetch_new(struct controller *op, struct page_fetch **ret);
/* Before ask_free. Requests in flight refer to it: the kube client must not run again, only
 * be freed. Accepts NULL; calls no one back. */
void page_fetch_free(struct page_fetch *f);

/* Calls fn exactly once, possibly before it returns. Strings are copied. http is 404: no
 * such job, pod or rank; 429: too many wait; 502, 503, 504. */
void page_fetch_start(struct page_fetch *f,
                      const struct page_query *q,
                      page_fetch_fn fn,
                      void *arg);
/* Queries that wait with that arg are not called back any more. */
void page_fetch_cancel(struct page_fetch *f, const void *arg);

/* Sends what is due to the API server's client (so before kube_tick), and ends what takes
 * too long. */
void page_fetch_tick(struct page_fetch *f, uint64_t now_ns);
uint64_t page_fetch_next_ns(const struct page_fetch *f); /* when that has work */

#endif
