/* SPDX-License-Identifier: Apache-2.0 */
/* Equal queries share one answer: which are fetched, which viewers wait, and for how long
 * an answer is kept. Pure, one thread.
 *
 *   page_share_ask --> waiting --page_share_take--> in flight --page_share_end--> kept
 *        '--------------------------------------------------------------------------^
 */
#ifndef OPERATOR_PAGE_CORE_PAGE_SHARE_H
#define OPERATOR_PAGE_CORE_PAGE_SHARE_H

#include <stddef.h>
#include <stdint.h>

#define PAGE_SHARE_NS      3000000000ull
#define PAGE_SHARE_BYTES   (8u << 20) /* of the answers that are kept */
#define PAGE_SHARE_KEPT    1024u      /* their number */
#define PAGE_SHARE_WAITERS 256u       /* for agents, and as many for the API server; */
#define PAGE_SHARE_FLIGHT  8u         /* the same; of an agent no more are answered */

enum page_fetch_what { PAGE_EVENTS, PAGE_RANKS, PAGE_STACKS, PAGE_LOG, PAGE_JOB };

struct page_query {
    enum page_fetch_what what;
    const char *key; /* of the job in the store */
    int64_t rank;    /* PAGE_LOG: -1: all */
    uint32_t tail;   /* PAGE_LOG: lines */
};

/* http: 200 and the JSON of README.md (PAGE_JOB: the job); else {"error": "..."}. body: valid during the
 * call. */
typedef void (*page_fetch_fn)(void *arg, int http, const char *body, size_t n);

struct page_share;
struct page_share *page_share_new(void);    /* NULL: out of memory */
void page_share_free(struct page_share *s); /* calls no one back; accepts NULL */

/* 0: fn is or was called exactly once; -EAGAIN: PAGE_SHARE_WAITERS wait; -ENOMEM: then fn
 * is not called. Strings are copied. */
int page_share_ask(struct page_share *s,
                   const struct page_query *q,
                   uint64_t now_ns,
                   page_fetch_fn fn,
                   void *arg);
void page_share_cancel(struct page_share *s, const void *arg);

/* The query that waits longest and may be fetched now; it is in flight until
 * page_share_end. NULL: none, or PAGE_SHARE_FLIGHT are in flight. */
struct page_item;
struct page_item *page_share_take(struct page_share *s);
const struct page_query *page_item_query(const struct page_item *i);
/* Calls those back that wait for it. Takes ownership of body (mem_free); NULL: out of
 * memory, which becomes a 503. */
void page_share_end(struct page_share *s,
                    struct page_item *i,
                    uint64_t now_ns,
                    int http,
                    char *body,
                    size_t n);

size_t page_share_bytes(const struct page_share *s); /* of answers that are kept */

#endif
