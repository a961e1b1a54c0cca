/* SPDX-License-Identifier: Apache-2.0 */
/* The meeting point of user threads and the coordinator. One leaf lock; the two
 * counters are atomics so that the coordinator, deciding whether to sleep, and a
 * submitter, deciding whether to wake it, need no lock (see coordinator.c, "sleeping").
 */
#include "runtime/api/tensor_queue.h"

#include <errno.h>
#include <stdio.h>

void tensor_queue_init(struct tensor_queue *q)
{
    *q = (struct tensor_queue){.lock = PTHREAD_MUTEX_INITIALIZER};
}

void tensor_queue_release(struct tensor_queue *q)
{
    nametab_release(&q->names);
    (void)pthread_mutex_destroy(&q->lock);
}

int tensor_queue_push(struct tensor_queue *q, struct op *op, struct err *err)
{
    char name[NAME_SHOWN_MAX];
    int r;

    (void)pthread_mutex_lock(&q->lock);
    if (q->is_closed) {
        r = err_set(err, q->closed_status, "%s", q->closed_text);
    } else {
        op->node.name = op->req.name;
        op->node.set = op->req.process_set;
        r = nametab_add(&q->names, &op->node);
        if (r == -EEXIST)
            r = err_set(
                err, HVD_INVALID_ARGUMENT,
                "Requested to allreduce, allgather, or broadcast a tensor with the "
                "same name as another tensor that is currently being processed: %s",
                name_shown(op->req.name, name));
        else if (r < 0)
            r = err_set(err, HVD_NO_MEMORY, "out of memory for a pending tensor");
    }
    if (r == 0) {
        (void)op_ref(op);
        op->next = NULL;
        if (q->tail)
            q->tail->next = op;
        else
            q->head = op;
        q->tail = op;
        atomic_fetch_add_explicit(&q->n_new, 1, memory_order_seq_cst);
        atomic_fetch_add_explicit(&q->n_outstanding, 1, memory_order_seq_cst);
    }
    (void)pthread_mutex_unlock(&q->lock);
    return r;
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
