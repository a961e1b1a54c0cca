/* SPDX-License-Identifier: Apache-2.0 */
/* The Events of one job, out of lists of a namespace's Events. Pure. */
#ifndef OPERATOR_PAGE_CORE_PAGE_EVENTS_H
#define OPERATOR_PAGE_CORE_PAGE_EVENTS_H

#include "operator/core/meta.h"
#include "runtime/base/strbuf.h"

#define PAGE_EVENTS_MAX 200u

struct page_events;
/* Of the job with that name and uid; both are copied. NULL: out of memory. */
struct page_events *page_events_new(const char *name, const char *uid);
void page_events_free(struct page_events *e); /* accepts NULL */

/* Adds those of a List. What cannot be read is left out. An Event that was added before,
 * by its uid, is replaced. ret_continue: for the next page of the list, "" if there is
 * none. -EINVAL: not a list; -ENOMEM. */
#define PAGE_CONTINUE_SIZE 2048
int page_events_add(struct page_events *e,
                    const char *text,
                    size_t n,
                    char ret_continue[PAGE_CONTINUE_SIZE]);

/* {"events": [EVENT...]} of README.md: the newest PAGE_EVENTS_MAX, the oldest first. With
 * "truncated": true if there are others: is_partial, or more than that. */
void page_events_json(struct page_events *e, bool is_partial, struct strbuf *out);

#endif
