/* SPDX-License-Identifier: Apache-2.0 */
/* Keyed queue.
 *
 *   absent --add--> WAITING(due) --take--> WORKING --done--> absent
 *                       ^                     |  add while WORKING: due is remembered
 *                       '---- done(failed) or remembered due ----'
 *
 * A sorted vector, so that the keys of a namespace are neighbours. To take one, all are
 * scanned: mostly there are tens, and ten thousand after a list take 0.1 ms. A key that
 * fails stays in the queue, so that its back-off grows. */
#include "operator/core/queue.h"

#include <errno.h>
#include <string.h>

#include "operator/core/keyed.h"
#include "runtime/base/mem.h"

struct item {
    char *key;       /* first: see keyed.h */
    uint64_t due_ns; /* UINT64_MAX: not due (only while taken or failing) */
    uint64_t retry_ns;
    uint64_t waited_ns; /* how long the current or last work had been due */
    unsigned n_failures;
    bool is_working;
    bool is_swept;
};

struct work_queue {
    struct keyed items;
};

struct work_queue *queue_new(void)
{
    return mem_zalloc(sizeof(struct work_queue));
}

static void item_free(struct item *it)
{
    mem_free(it->key);
    mem_free(it);
}

void queue_free(struct work_queue *q)
{
    if (!q)
        return;
    for (size_t i = 0; i < q->items.n; i++)
        item_free(q->items.v[i]);
    keyed_release(&q->items);
    mem_free(q);
}

static struct item *queue_find_item(const struct work_queue *q, const char *key)
{
    return keyed_find(&q->items, key);
}

static int queue_insert(struct work_queue *q, const char *key, struct item init)
{
    struct item *it = mem_zalloc(sizeof(*it));
    int rc = -ENOMEM;

    if (!it)
        return rc;
    *it = init;
    it->key = mem_strdup(key);
    if (it->key)
        rc = keyed_insert(&q->items, it);
    if (rc < 0)
        item_free(it);
    return rc;
}

int queue_add(struct work_queue *q, const char *key, uint64_t due_ns)
{
    struct item *it = queue_find_item(q, key);

    if (!it)
        return queue_insert(q, key, (struct item){.due_ns = due_ns});
    it->is_swept = false;
    if (due_ns < it->due_ns)
        it->due_ns = due_ns;
    return 0;
}

int queue_sweep(struct work_queue *q, const char *key, uint64_t due_ns)
{
    struct item *it = queue_find_item(q, key);

    if (it && due_ns < it->due_ns)
        it->due_ns = due_ns; /* a back-off, too, as for queue_add */
    return it ? 0
              : queue_insert(q, key, (struct item){.due_ns = due_ns, .is_swept = true});
}

static unsigned queue_n_working(const struct work_queue *q, size_t begin, size_t end)
{
    unsigned n = 0;

    for (size_t i = begin; i < end; i++)
        n += ((const struct item *)q->items.v[i])->is_working;
    return n;
}

struct candidate {
    struct item *item;
    unsigned n_working; /* in its namespace */
};

static bool candidate_precedes(const struct candidate *a, const struct candidate *b)
{
    if (!b->item)
        return true;
    if (a->item->is_swept != b->item->is_swept)
        return b->item->is_swept;
    if (a->n_working != b->n_working)
        return a->n_working < b->n_working;
    return a->item->due_ns < b->item->due_ns;
}

const char *queue_take(struct work_queue *q, uint64_t now_ns, unsigned max)
{
    struct candidate best = {NULL, 0};
    struct item *it;

    for (size_t i = 0, end; i < q->items.n; i = end) {
        struct candidate c;

        end = keyed_namespace_end(&q->items, i);
        c.n_working = queue_n_working(q, i, end);
        for (size_t k = i; k < end && c.n_working < max; k++) {
            c.item = q->items.v[k];
            if (!c.item->is_working && c.item->due_ns <= now_ns
                && candidate_precedes(&c, &best))
                best = c;
        }
    }
    it = best.item;
    if (!it)
        return NULL;
    it->is_working = true;
    it->is_swept = false;
    it->waited_ns = now_ns - it->due_ns;
    it->due_ns = UINT64_MAX;
    return it->key;
}

static void queue_drop_item(struct work_queue *q, struct item *it)
{
    keyed_remove(&q->items, it);
    item_free(it);
}

uint64_t queue_done(struct work_queue *q, const char *key, bool failed, uint64_t now_ns)
{
    struct item *it = queue_find_item(q, key);

    if (!it)
        return 0;
    it->is_working = false;
    it->n_failures = failed ? it->n_failures + 1 : 0;
    if (failed) {
        it->retry_ns = it->retry_ns ? it->retry_ns * 2 : QUEUE_FIRST_RETRY_NS;
        if (it->retry_ns > QUEUE_MAX_RETRY_NS)
            it->retry_ns = QUEUE_MAX_RETRY_NS;
        it->due_ns = now_ns + it->retry_ns; /* also delays an add during the work */
        return it->retry_ns;
    }
    it->retry_ns = 0;
    if (it->due_ns == UINT64_MAX)
        queue_drop_item(q, it);
    return 0;
}

uint64_t queue_waited_ns(const struct work_queue *q, const char *key)
{
    const struct item *it = queue_find_item(q, key);

    return it ? it->waited_ns : 0;
}

unsigned queue_n_failures(const struct work_queue *q, const char *key)
{
    const struct item *it = queue_find_item(q, key);

    return it ? it->n_failures : 0;
}

uint64_t queue_next_ns(const struct work_queue *q, unsigned max)
{
    uint64_t next = UINT64_MAX;

    for (size_t i = 0, end; i < q->items.n; i = end) {
        end = keyed_namespace_end(&q->items, i);
        if (queue_n_working(q, i, end) >= max)
            continue;
        for (size_t k = i; k < end; k++) {
            const struct item *it = q->items.v[k];

            if (!it->is_working && it->due_ns < next)
                next = it->due_ns;
        }
    }
    return next;
}

size_t queue_depth(const struct work_queue *q)
{
    size_t n = 0;

    for (size_t i = 0; i < q->items.n; i++)
        n += ((const struct item *)q->items.v[i])->due_ns != UINT64_MAX;
    return n;
}
