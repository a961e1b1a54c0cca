/* SPDX-License-Identifier: Apache-2.0 */
/* One submitted operation, from hvd_*_async to hvd_release. */
#ifndef RUNTIME_API_OP_H
#define RUNTIME_API_OP_H

#include <stdatomic.h>

#include "runtime/core/message.h"
#include "runtime/core/nametab.h"
#include "hvd.h"

struct coordinator;

struct op {
    struct nametab_node node; /* tensor queue's lock; first member */
    struct op *next; /* of the list it is in: tensor queue's lock, then the seat */
    _Atomic uint32_t refs; /* handle, tensor queue, each waiter */
    /* Set before the op is shared, constant afterwards. */
    struct request req;
    uint64_t count, bytes; /* of this rank's tensor */
    const void *data;
    void *output;
    void *ready_event;
    hvd_done_fn done;
    void *done_arg;
    hvd_alloc_fn alloc;
    void *alloc_arg;
    struct coordinator *co; /* a reference */
    /* The seat's until status is final, then read by anyone (status is stored with
     * release). */
    uint64_t *counts; /* allgather: elements of each rank */
    void *result;     /* allgather: runtime's memory when owns_result */
    bool owns_result;
    bool has_no_memory; /* the caller's alloc gave none: take part, then fail */
    int result_ndim;
    int64_t result_shape[TENSOR_MAX_DIMS];
    char error[MESSAGE_TEXT_MAX];
    _Atomic int status; /* HVD_IN_PROGRESS or the end */
};

struct op *op_new(void); /* one reference; NULL: out of memory */
struct op *op_ref(struct op *op);
void op_unref(struct op *op); /* accepts NULL */
int op_status(const struct op *op);

/* Exactly once per op, by the thread in the seat: callback, then the status becomes
 * visible. */
void op_finish(struct op *op, int status, const char *error);
/* True inside a callback of this thread, where waiting and shutting down are refused.
 */
bool op_in_callback(void);

/* Allgather: memory for the whole result; dim0: rows of each of n_ranks. 0, -ENOMEM. */
int op_make_result(struct op *op, const uint64_t *dim0, uint32_t n_ranks);

#endif
