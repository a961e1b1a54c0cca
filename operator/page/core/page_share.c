/* SPDX-License-Identifier: Apache-2.0 */
/* One list of items, the oldest first: 8 in flight of each source, as many waiting as
 * there are viewers that wait, and answers of at most PAGE_SHARE_BYTES. It is short, and
 * searched from its begin. Agents and the API server, whose rate is limited, are two
 * sources: no query of one waits for those of the other.
 *
 * Invariants
 *  1. An item in flight stays until page_share_end, also if no one waits for it any more.
 *  2. An answer is kept for PAGE_SHARE_NS after its end. The bytes of kept answers, with
 *     their items, do not exceed PAGE_SHARE_BYTES: the oldest are dropped first.
 *  3. While the viewers of an item are called, it is pinned: they may ask and cancel.
 * Called by page_fetch.c. */
#include "operator/page/core/page_share.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "runtime/base/mem.h"

struct page_waiter {
    struct page_waiter *next;
    page_fetch_fn fn;
    void *arg;
};

enum page_item_state { ITEM_WAITING, ITEM_IN_FLIGHT, ITEM_KEPT };

struct page_item {
    struct page_item *next;
    struct page_query query; /* owns its key */
    enum page_item_state state;
    bool is_pinned;
    struct page_waiter *first, *last;
    int http;
    char *body;
    size_t n;
    uint64_t ended_ns;
};

struct page_source {
    size_t n_waiters, n_in_flight;
};

struct page_share {
    struct page_item *first, *last;
    struct page_source agents, api;
    size_t n_kept, bytes;
};

static struct page_source *share_source(struct page_share *s,
                                        const struct page_query *q)
{
    return q->what == PAGE_RANKS || q->what == PAGE_STACKS ? &s->agents : &s->api;
}

struct page_share *page_share_new(void)
{
    return mem_zalloc(sizeof(struct page_share));
}

static size_t item_bytes(const struct page_item *i)
{
    return sizeof(*i) + strlen(i->query.key) + 1 + i->n + 1;
}

static void item_free(struct page_item *i)
{
    while (i->first) {
        struct page_waiter *w = i->first;

        i->first = w->next;
        mem_free(w);
    }
    mem_free((void *)(uintptr_t)i->query.key);
    mem_free(i->body);
    mem_free(i);
}

void page_share_free(struct page_share *s)
{
    while (s && s->first) {
        struct page_item *i = s->first;

        s->first = i->next;
        item_free(i);
    }
    mem_free(s);
}

static void share_append(struct page_share *s, struct page_item *i)
{
    i->next = NULL;
    if (s->last)
        s->last->next = i;
    else
        s->first = i;
    s->last = i;
}

static void share_unlink(struct page_share *s, const struct page_item *i)
{
    struct page_item *before = NULL, *x = s->first;

    for (; x != i; x = x->next)
        before = x;
    if (before)
        before->next = i->next;
    else
        s->first = i->next;
    if (s->last == i)
        s->last = before;
}

static void share_drop(struct page_share *s, struct page_item *i)
{
    share_unlink(s, i);
    if (i->state == ITEM_KEPT) {
        s->bytes -= item_bytes(i);
        s->n_kept--;
    }
    item_free(i);
}

/* Drops answers that are too old, and the oldest of too many. */
static void share_trim(struct page_share *s, uint64_t now_ns)
{
    struct page_item *next;

    for (struct page_item *i = s->first; i; i = next) {
        next = i->next;
        if (i->state == ITEM_KEPT && !i->is_pinned
            && (now_ns - i->ended_ns >= PAGE_SHARE_NS || s->bytes > PAGE_SHARE_BYTES
                || s->n_kept > PAGE_SHARE_KEPT))
            share_drop(s, i);
    }
}

static bool query_equal(const struct page_query *a, const struct page_query *b)
{
    return a->what == b->what && strcmp(a->key, b->key) == 0
           && (a->what != PAGE_LOG || (a->rank == b->rank && a->tail == b->tail));
}

static struct page_item *
share_find(const struct page_share *s, const struct page_query *q, uint64_t now_ns)
{
    struct page_item *i = s->first;

    while (i
           && !(query_equal(&i->query, q)
                && (i->state != ITEM_KEPT || now_ns - i->ended_ns < PAGE_SHARE_NS)))
        i = i->next;
    return i;
}

static void item_report(const struct page_item *i, page_fetch_fn fn, void *arg)
{
    static const char out_of_memory[] = "{\"error\":\"out of memory\"}";

    if (i->body)
        fn(arg, i->http, i->body, i->n);
    else
        fn(arg, 503, out_of_memory, sizeof(out_of_memory) - 1);
}

static struct page_item *item_new(const struct page_query *q)
{
    struct page_item *i = mem_zalloc(sizeof(*i));

    if (!i)
        return NULL;
    i->query = *q;
    i->query.key = mem_strdup(q->key);
    if (i->query.key)
        return i;
    mem_free(i);
    return NULL;
}

static void
item_add_waiter(struct page_item *i, struct page_waiter *w, page_fetch_fn fn, void *arg)
{
    *w = (struct page_waiter){.fn = fn, .arg = arg};
    if (i->last)
        i->last->next = w;
    else
        i->first = w;
    i->last = w;
}

int page_share_ask(struct page_share *s,
                   const struct page_query *q,
                   uint64_t now_ns,
                   page_fetch_fn fn,
                   void *arg)
{
    struct page_item *i;
    struct page_waiter *w;

    share_trim(s, now_ns);
    i = share_find(s, q, now_ns);
    if (i && i->state == ITEM_KEPT) {
        bool was_pinned = i->is_pinned;

        i->is_pinned = true;
        item_report(i, fn, arg);
        i->is_pinned = was_pinned;
        return 0;
    }
    if (share_source(s, q)->n_waiters == PAGE_SHARE_WAITERS)
        return -EAGAIN;
    w = mem_alloc(sizeof(*w));
    if (w && !i) {
        i = item_new(q);
        if (i)
            share_append(s, i);
    }
    if (!w || !i) {
        mem_free(w);
        return -ENOMEM;
    }
    item_add_waiter(i, w, fn, arg);
    share_source(s, q)->n_waiters++;
    return 0;
}

/* Removes the waiter at *p, which follows before. */
static void item_remove_waiter(struct page_share *s,
                               struct page_item *i,
                               struct page_waiter **p,
                               struct page_waiter *before)
{
    struct page_waiter *w = *p;

    *p = w->next;
    if (i->last == w)
        i->last = before;
    share_source(s, &i->query)->n_waiters--;
    mem_free(w);
}

void page_share_cancel(struct page_share *s, const void *arg)
{
    struct page_item *next;

    for (struct page_item *i = s->first; i; i = next) {
        struct page_waiter **p = &i->first, *before = NULL;

        next = i->next;
        while (*p) {
            if ((*p)->arg == arg) {
                item_remove_waiter(s, i, p, before);
            } else {
                before = *p;
                p = &before->next;
            }
        }
        if (i->state == ITEM_WAITING && !i->first)
            share_drop(s, i);
    }
}

struct page_item *page_share_take(struct page_share *s)
{
    struct page_item *i = s->first;

    while (i
           && !(i->state == ITEM_WAITING
                && share_source(s, &i->query)->n_in_flight < PAGE_SHARE_FLIGHT))
        i = i->next;
    if (!i)
        return NULL;
    i->state = ITEM_IN_FLIGHT;
    share_source(s, &i->query)->n_in_flight++;
    return i;
}

const struct page_query *page_item_query(const struct page_item *i)
{
    return &i->query;
}

void page_share_end(struct page_share *s,
                    struct page_item *i,
                    uint64_t now_ns,
                    int http,
                    char *body,
                    size_t n)
{
    share_source(s, &i->query)->n_in_flight--;
    share_unlink(s, i); /* by age of the answers */
    share_append(s, i);
    i->state = ITEM_KEPT;
    i->http = http;
    i->body = body;
    i->n = n;
    i->ended_ns = now_ns;
    s->bytes += item_bytes(i);
    s->n_kept++;
    i->is_pinned = true;
    while (i->first) {
        page_fetch_fn fn = i->first->fn;
        void *arg = i->first->arg;

        item_remove_waiter(s, i, &i->first, NULL);
        item_report(i, fn, arg);
    }
    i->is_pinned = false;
    share_trim(s, now_ns);
}

size_t page_share_bytes(const struct page_share *s)
{
    return s->bytes;
}
