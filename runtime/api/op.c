/* SPDX-License-Identifier: Apache-2.0 */
/* Life of an operation. References: one of the handle table (until hvd_release), one of
 * the tensor queue (until op_finish), one of every hvd_wait. The thread-local depth of
 * callbacks is the only state outside the object. */
#include "runtime/api/op.h"

#include <errno.h>
#include <stdio.h>

#include "runtime/api/coordinator.h"
#include "runtime/base/mem.h"

static __thread int callback_depth;

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

void op_unref(struct op *op)
{
    /* acq_rel: whoever frees sees what all other holders have done to it */
    if (!op || atomic_fetch_sub_explicit(&op->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (op->owns_result)
        mem_free(op->result);
    mem_free(op->counts);
    coordinator_unref(op->co);
    mem_free(op);
}

int op_status(const struct op *op)
{
    /* pairs with the store in op_finish: a final status shows results and error text */
    return atomic_load_explicit(&op->status, memory_order_seq_cst);
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
        callback_depth++;
        op->done(op->done_arg, status, status == HVD_OK ? NULL : op->error);
        callback_depth--;
    }
    /* seq_cst: pairs with op_status, and orders this store before the coordinator's
     * look at the number of sleepers */
    atomic_store_explicit(&op->status, status, memory_order_seq_cst);
}

int op_make_result(struct op *op, const uint64_t *dim0, uint32_t n_ranks)
{
    uint64_t row = 1, rows = 0, bytes, count;

    for (uint32_t i = 1; i < op->req.ndim; i++)
        row *= (uint64_t)op->req.shape[i]; /* checked when the request was made */
    op->counts = mem_calloc(n_ranks, sizeof(*op->counts));
    if (!op->counts)
        return -ENOMEM;
    for (uint32_t r = 0; r < n_ranks; r++) {
        if (__builtin_mul_overflow(dim0[r], row, &op->counts[r])
            || __builtin_add_overflow(rows, dim0[r], &rows))
            return -ENOMEM;
    }
    if (__builtin_mul_overflow(rows, row, &count)
        || __builtin_mul_overflow(count, (uint64_t)dtype_size(op->req.dtype), &bytes)
        || bytes > INT64_MAX)
        return -ENOMEM;
    op->result_ndim = (int)op->req.ndim;
    for (uint32_t i = 1; i < op->req.ndim; i++)
        op->result_shape[i] = op->req.shape[i];
    op->result_shape[0] = (int64_t)rows;
    if (op->alloc) {
        callback_depth++;
        op->result =
            op->alloc(op->alloc_arg, op->result_ndim, op->result_shape, (size_t)bytes);
        callback_depth--;
        op->has_no_memory = !op->result;
    }
    if (!op->result) {
        op->result = mem_alloc(bytes > 0 ? (size_t)bytes : 1);
        op->owns_result = true;
    }
    return op->result ? 0 : -ENOMEM;
}
