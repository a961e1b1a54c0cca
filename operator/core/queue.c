/* SPDX-License-Identifier: Apache-2.0 */
/* Keyed queue.
 *
 *   absent --add--> WAITING(due) --take--> WORKING --done--> absent
 *                       ^                     |  add while WORKING: due is remembered
 *                       '---- done(failed) or remembered due ----'
 *
 * A vector that is scanned linearly: a key is in the queue only while a job needs a
 * sync, which is tens at a time. A key that fails stays in the queue, so that its
 * back-off grows. */
#include "operator/core/queue.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/mem.h"

#define QUEUE_MAX_KEYS 1000000u

struct item {
    char *key;
    uint64_t due_ns; /* UINT64_MAX: not due (only while taken or failing) */
    uint64_t retry_ns;
    uint64_t waited_ns; /* how long the current or last work had been due */
    unsigned n_failures;
    bool is_working;
};

struct work_queue {
    struct item *v;
    size_t n, cap;
};

struct work_queue *queue_new(void)
{
    return mem_zalloc(sizeof(struct work_queue));
}

void queue_free(struct work_queue *q)
{
    if (!q)
        return;
    for (size_t i = 0; i < q->n; i++)
        mem_free(q->v[i].key);
    mem_free(q->v);
    mem_free(q);
}

static struct item *queue_find_item(const struct work_queue *q, const char *key)
{
    for (size_t i = 0; i < q->n; i++) {
        if (strcmp(q->v[i].key, key) == 0)
            return &q->v[i];
    }
    return NULL;
}

int queue_add(struct work_queue *q, const char *key, uint64_t due_ns)
{
    struct item *it = queue_find_item(q, key);
    void *v = q->v;
    char *copy;
    int rc;

    if (it) {
        if (due_ns < it->due_ns)
            it->due_ns = due_ns;
        return 0;
    }
    rc = mem_grow(&v, q->n, &q->cap, sizeof(*q->v), QUEUE_MAX_KEYS);
    if (rc < 0)
        return rc;
    q->v = v;
    copy = mem_strdup(key);
    if (!copy)
        return -ENOMEM;
    q->v[q->n++] = (struct item){.key = copy, .due_ns = due_ns};
    return 0;
}

const char *queue_take(struct work_queue *q, uint64_t now_ns)
{
    struct item *best = NULL;

    for (size_t i = 0; i < q->n; i++) {
        struct item *it = &q->v[i];

        if (!it->is_working && it->due_ns <= now_ns
            && (!best || it->due_ns < best->due_ns))
            best = it;
    }
    if (!best)
        return NULL;
    best->is_working = true;
    best->waited_ns = now_ns - best->due_ns;
    best->due_ns = UINT64_MAX;
    return best->key;
}

static void queue_drop_item(struct work_queue *q, struct item *it)
{
    mem_free(it->key);
    *it = q->v[--q->n];
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

uint64_t queue_next_ns(const struct work_queue *q)
{
    uint64_t next = UINT64_MAX;

    for (size_t i = 0; i < q->n; i++) {
        if (!q->v[i].is_working && q->v[i].due_ns < next)
            next = q->v[i].due_ns;
    }
    return next;
}

size_t queue_depth(const struct work_queue *q)
{
    size_t n = 0;

    for (size_t i = 0; i < q->n; i++)
        n += q->v[i].due_ns != UINT64_MAX;
    return n;
}
