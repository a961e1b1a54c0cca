/* SPDX-License-Identifier: Apache-2.0 */
/* The life of an operation. References: one of the handle table (until hvd_release),
 * one of the tensor queue (until op_finish), one of every hvd_wait. Thread-local state
 * outside the object: the depth of callbacks, and the op of the innermost. */
#include "runtime/engine/op.h"

#include <errno.h>
#include <stdio.h>

#include "runtime/base/mem.h"

static __thread int callback_depth;
static __thread const struct op *ending; /* whose callback this thread is in */
static __thread int ending_status;

struct op *op_new(void)
{
    struct op *op = mem_zalloc(sizeof(*op));

    if (!op)
        return NULL;
    atomic_init(&op->refs, 1);
    atomic_init(&op->status, HVD_IN_PROGRESS);
    return op;
}

struct op *op_ref(struct op *op)
{
    atomic_fetch_add_explicit(&op->refs, 1, memory_order_relaxed);
    return op;
}

void op_owner_unref(struct op_owner *o)
{
    /* acq_rel: the thread that frees sees the writes of all other threads */
    if (o && atomic_fetch_sub_explicit(&o->refs, 1, memory_order_acq_rel) == 1)
        o->free(o);
}

void op_unref(struct op *op)
{
    /* acq_rel: the thread that frees sees what all other holders have done */
    if (!op || atomic_fetch_sub_explicit(&op->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (op->owns_result && op->gpu)
        op->gpu->free(op->result,
                      atomic_load_explicit(&op->read_in, memory_order_relaxed));
    else if (op->owns_result)
        mem_free(op->result);
    if (op->gpu) {
        op->gpu->event_unref(op->ready);
        op->gpu->event_unref(op->given);
        op->gpu->event_unref(op->posted);
    }
    mem_free(op->counts);
    mem_free(op->send_counts);
    mem_free(op->received);
    mem_free(op->rows);
    mem_free(op->ranks);
    op_owner_unref(op->owner);
    mem_free(op);
}

int op_status(const struct op *op)
{
    /* pairs with the store in op_finish: a final status shows results and error text */
    return atomic_load_explicit(&op->status, memory_order_seq_cst);
}

bool op_has_reached(const struct op *op, enum op_state state)
{
    /* pairs with op_set_posted */
    return op_status(op) != HVD_IN_PROGRESS
           || (state == OP_POSTED && atomic_load(&op->is_posted));
}

int op_status_in_callback(const struct op *op)
{
    return op == ending ? ending_status : op_status(op);
}

bool op_in_callback(void)
{
    return callback_depth > 0;
}

void op_finish(struct op *op, int status, const char *error)
{
    if (status != HVD_OK)
        (void)snprintf(op->error, sizeof(op->error), "%s", error);
    if (op->done) {
        const struct op *outer = ending;
        int outer_status = ending_status;

        callback_depth++;
        ending = op;
        ending_status = status;
        op->done(op->done_arg, status, status == HVD_OK ? NULL : op->error);
        ending = outer;
        ending_status = outer_status;
        callback_depth--;
    }
    /* seq_cst: pairs with op_status, and orders this store before the coordinator's
     * look at the number of sleepers */
    atomic_store_explicit(&op->status, status, memory_order_seq_cst);
}

void op_set_posted(struct op *op, struct device_event *event)
{
    op->posted = event;
    atomic_store(&op->is_posted, true); /* seq_cst as op_finish, for the same reason */
}

/* --- results --- */

bool op_has_result(const struct op *op)
{
    switch (op->req.coll) {
    case COLL_ALLGATHER:
    case COLL_GATHER:
    case COLL_ALLTOALL:
    case COLL_REDUCESCATTER:
        return true;
    case COLL_ALLREDUCE:
    case COLL_BROADCAST:
    case COLL_BARRIER:
    case COLL_REDUCE:
    case COLL_JOIN:
    case COLL_SET_ADD:
    case COLL_SET_REMOVE:
    case COLL_SENDRECV:
    case COLL_REGISTER:
    case COLL_PROBE:
    case COLL_COUNT:
        break;
    }
    return false;
}

static uint64_t hash_add_byte(uint64_t h, uint8_t byte)
{
    return (h ^ byte) * 0x100000001b3ull;
}

uint64_t op_hash_u32(uint64_t h, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        h = hash_add_byte(h, (uint8_t)(v >> 8 * i));
    return h;
}

uint64_t op_hash_text(uint64_t h, const char *text)
{
    while (*text)
        h = hash_add_byte(h, (uint8_t)*text++);
    return h;
}

uint64_t op_share(uint64_t rows, uint32_t n, uint32_t i)
{
    return rows / n + (i < rows % n ? 1 : 0);
}

/* Elements of one row. The product is checked when the request is made, but for a
 * tensor of no rows, where it is not used. */
static uint64_t op_row_elements(const struct op *op)
{
    uint64_t row = 1;

    for (uint32_t i = 1; i < op->req.ndim; i++)
        row *= (uint64_t)op->req.shape[i];
    return row;
}

int op_make_send_counts(struct op *op, uint32_t n)
{
    uint64_t row = op_row_elements(op);

    op->send_counts = mem_calloc(n, sizeof(*op->send_counts));
    if (!op->send_counts)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++) /* at most the tensor's own elements */
        op->send_counts[i] = (uint64_t)op->rows[i] * row;
    return 0;
}

/* counts, and the rows of the result. */
static int
op_count_rows(struct op *op, const uint64_t *dim0, uint32_t n, uint64_t *ret_rows)
{
    bool is_share = op->req.coll == COLL_REDUCESCATTER;
    uint64_t row = op_row_elements(op), rows = 0;

    op->counts = mem_calloc(n, sizeof(*op->counts));
    if (op->req.coll == COLL_ALLTOALL)
        op->received = mem_calloc(n, sizeof(*op->received));
    if (!op->counts || (op->req.coll == COLL_ALLTOALL && !op->received))
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t mine = is_share ? op_share((uint64_t)op->req.shape[0], n, i) : dim0[i];

        if (__builtin_mul_overflow(mine, row, &op->counts[i])
            || __builtin_add_overflow(rows, mine, &rows))
            return -ENOMEM;
        if (op->received)
            op->received[i] = (int64_t)mine;
        if (is_share && i == op->me)
            *ret_rows = mine;
    }
    if (!is_share)
        *ret_rows = rows;
    return 0;
}

static int op_allocate(struct op *op, size_t bytes, struct err *err)
{
    int rc = 0;

    if (op->gpu)
        rc = op->gpu->alloc(op->device, bytes, &op->result, &op->given, err);
    else
        op->result = mem_alloc(bytes);
    op->owns_result = rc == 0 && op->result;
    return op->owns_result || rc < 0 ? rc : -ENOMEM;
}

static int op_take_memory(struct op *op, uint64_t bytes, struct err *err)
{
    if (op->alloc) {
        callback_depth++;
        op->result =
            op->alloc(op->alloc_arg, op->result_ndim, op->result_shape, (size_t)bytes);
        callback_depth--;
        op->has_no_memory = !op->result;
    }
    return op->result ? 0 : op_allocate(op, bytes > 0 ? (size_t)bytes : 1, err);
}

int op_make_result(struct op *op, const uint64_t *dim0, uint32_t n, struct err *err)
{
    bool is_bystander = op->req.coll == COLL_GATHER && op->me != op->root;
    uint64_t rows = 0, bytes, count;
    int rc = op_count_rows(op, dim0, n, &rows);

    if (rc < 0)
        return rc;
    if (is_bystander)
        rows = 0;
    if (__builtin_mul_overflow(rows, op_row_elements(op), &count)
        || __builtin_mul_overflow(count, (uint64_t)dtype_size(op->req.dtype), &bytes)
        || bytes > INT64_MAX)
        return -ENOMEM;
    op->result_ndim = (int)op->req.ndim;
    for (uint32_t i = 1; i < op->req.ndim; i++)
        op->result_shape[i] = op->req.shape[i];
    op->result_shape[0] = (int64_t)rows;
    return is_bystander ? 0 : op_take_memory(op, bytes, err);
}
