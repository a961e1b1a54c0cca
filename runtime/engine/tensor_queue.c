/* SPDX-License-Identifier: Apache-2.0 */
/* Between user threads and the coordinator. One leaf lock. The two counters are
 * atomics, so that the coordinator, deciding whether to sleep, and a submitter,
 * deciding whether to wake it, need no lock (coordinator.c, "Sleeping"). */
#include "runtime/engine/tensor_queue.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/clock.h"

void tensor_queue_init(struct tensor_queue *q)
{
    *q = (struct tensor_queue){.lock = PTHREAD_MUTEX_INITIALIZER};
}

void tensor_queue_release(struct tensor_queue *q)
{
    nametab_release(&q->names);
    (void)pthread_mutex_destroy(&q->lock);
}

/* With the lock. */
static int queue_add_name(struct tensor_queue *q, struct op *op, struct err *err)
{
    char name[NAME_SHOWN_MAX];
    int rc;

    op->node.name = op->req.name;
    op->node.set = op->req.process_set;
    rc = nametab_add(&q->names, &op->node);
    if (rc == -EEXIST)
        return err_set(
            err, HVD_INVALID_ARGUMENT,
            "Requested to allreduce, allgather, or broadcast a tensor with the "
            "same name as another tensor that is currently being processed: %s",
            name_shown(op->req.name, name));
    if (rc < 0)
        return err_set(err, HVD_NO_MEMORY, "out of memory for a pending tensor");
    return 0;
}

/* With the lock. All or none. */
static int queue_add_names(struct tensor_queue *q,
                           struct op *const *ops,
                           uint32_t n,
                           struct err *err)
{
    uint32_t i = 0;
    int rc = 0;

    if (q->is_closed)
        return err_set(err, q->closed_status, "%s", q->closed_text);
    while (i < n && rc == 0) {
        rc = queue_add_name(q, ops[i], err);
        i += rc == 0;
    }
    while (rc < 0 && i > 0)
        nametab_remove(&q->names, &ops[--i]->node);
    return rc;
}

int tensor_queue_push(struct tensor_queue *q,
                      struct op *const *ops,
                      uint32_t n,
                      struct err *err)
{
    uint64_t now = clock_now_ns();
    int rc;

    (void)pthread_mutex_lock(&q->lock);
    rc = queue_add_names(q, ops, n, err);
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        struct op *op = op_ref(ops[i]);

        op->submitted_ns = now;
        op->next = NULL;
        if (q->tail)
            q->tail->next = op;
        else
            q->head = op;
        q->tail = op;
    }
    if (rc == 0) {
        atomic_fetch_add_explicit(&q->n_new, n, memory_order_seq_cst);
        atomic_fetch_add_explicit(&q->n_outstanding, n, memory_order_seq_cst);
    }
    (void)pthread_mutex_unlock(&q->lock);
    return rc;
}

struct op *tensor_queue_take(struct tensor_queue *q)
{
    struct op *head;

    if (atomic_load_explicit(&q->n_new, memory_order_seq_cst) == 0)
        return NULL;
    (void)pthread_mutex_lock(&q->lock);
    head = q->head;
    q->head = q->tail = NULL;
    atomic_store_explicit(&q->n_new, 0, memory_order_seq_cst);
    (void)pthread_mutex_unlock(&q->lock);
    return head;
}

void tensor_queue_remove(struct tensor_queue *q, struct op *op)
{
    (void)pthread_mutex_lock(&q->lock);
    nametab_remove(&q->names, &op->node);
    atomic_fetch_sub_explicit(&q->n_outstanding, 1, memory_order_seq_cst);
    (void)pthread_mutex_unlock(&q->lock);
}

static bool range_overlaps(const void *v, uint64_t n, const void *p, uint64_t bytes)
{
    const uintptr_t a = (uintptr_t)v, b = (uintptr_t)p;

    return v && a < b + bytes && b < a + n;
}

bool tensor_queue_find_in(struct tensor_queue *q,
                          uint32_t set,
                          const void *p,
                          uint64_t bytes,
                          const struct op *but,
                          char ret_name[TENSOR_NAME_MAX])
{
    const struct op *found = NULL;

    (void)pthread_mutex_lock(&q->lock);
    for (size_t i = 0; i < q->names.n_buckets && !found; i++)
        for (struct nametab_node *n = q->names.v[i]; n && !found; n = n->next) {
            const struct op *op = (const struct op *)(const void *)n;

            if (op != but && op->gpu && op->req.process_set == set
                && (range_overlaps(op->data, op->bytes, p, bytes)
                    || range_overlaps(op->output, op->bytes, p, bytes)))
                found = op;
        }
    if (found)
        memcpy(ret_name, found->req.name, TENSOR_NAME_MAX);
    (void)pthread_mutex_unlock(&q->lock);
    return found != NULL;
}

void tensor_queue_close(struct tensor_queue *q, int status, const char *text)
{
    (void)pthread_mutex_lock(&q->lock);
    if (!q->is_closed) {
        q->is_closed = true;
        q->closed_status = status;
        (void)snprintf(q->closed_text, sizeof(q->closed_text), "%s", text);
    }
    (void)pthread_mutex_unlock(&q->lock);
}

int tensor_queue_status(struct tensor_queue *q, struct err *err)
{
    int rc = 0;

    (void)pthread_mutex_lock(&q->lock);
    if (q->is_closed)
        rc = err_set(err, q->closed_status, "%s", q->closed_text);
    (void)pthread_mutex_unlock(&q->lock);
    return rc;
}

struct op *tensor_queue_evict(struct tensor_queue *q)
{
    struct nametab_node *node = NULL;

    (void)pthread_mutex_lock(&q->lock);
    q->head = q->tail = NULL;
    atomic_store_explicit(&q->n_new, 0, memory_order_seq_cst);
    if (q->evict_at >= q->names.n_buckets)
        q->evict_at = 0; /* the table was empty, or has grown since */
    while (q->evict_at < q->names.n_buckets && !node) {
        node = q->names.v[q->evict_at];
        if (!node)
            q->evict_at++;
    }
    if (node) {
        nametab_remove(&q->names, node);
        atomic_fetch_sub_explicit(&q->n_outstanding, 1, memory_order_seq_cst);
    }
    (void)pthread_mutex_unlock(&q->lock);
    return (struct op *)(void *)node;
}
