/* SPDX-License-Identifier: Apache-2.0 */
/* Passes operations from user threads to the coordinator: a list of new ones, and a
 * table by name of all that have not ended. */
#ifndef RUNTIME_ENGINE_TENSOR_QUEUE_H
#define RUNTIME_ENGINE_TENSOR_QUEUE_H

#include <pthread.h>

#include "runtime/engine/op.h"

struct tensor_queue {
    pthread_mutex_t lock;   /* leaf lock: nothing is called while it is held */
    struct nametab names;   /* lock; every op between push and remove */
    struct op *head, *tail; /* lock; pushed, not yet taken */
    bool is_closed;         /* lock */
    int closed_status;
    char closed_text[MESSAGE_TEXT_MAX];
    _Atomic uint32_t n_new;         /* changes under the lock, read without */
    _Atomic uint32_t n_outstanding; /* likewise: entries of names */
    size_t evict_at;                /* lock; buckets before it are empty */
};

void tensor_queue_init(struct tensor_queue *q);
void tensor_queue_release(struct tensor_queue *q); /* must be empty */
/* All n or none, as submitted now; takes a reference to each. 0; HVD_INVALID_ARGUMENT:
 * a name is pending already; HVD_NO_MEMORY; after tensor_queue_close its status. */
int tensor_queue_push(struct tensor_queue *q,
                      struct op *const *ops,
                      uint32_t n,
                      struct err *err);
/* All new ones in order of submission, linked by next; they stay in the table. */
struct op *tensor_queue_take(struct tensor_queue *q);
/* Out of the table; the caller now owns the queue's reference. */
void tensor_queue_remove(struct tensor_queue *q, struct op *op);
/* Finds an op of this set on a GPU, other than `but`, with memory in [p, p + bytes),
 * and returns its name. */
bool tensor_queue_find_in(struct tensor_queue *q,
                          uint32_t set,
                          const void *p,
                          uint64_t bytes,
                          const struct op *but,
                          char ret_name[TENSOR_NAME_MAX]);
/* No more pushes: they get this status and text. The first close wins. */
void tensor_queue_close(struct tensor_queue *q, int status, const char *text);
/* 0, or what tensor_queue_close has set, with its text. */
int tensor_queue_status(struct tensor_queue *q, struct err *err);
/* Any op of the table, taken out of it, or NULL. For failing all of a closed queue. */
struct op *tensor_queue_evict(struct tensor_queue *q);

#endif
