/* SPDX-License-Identifier: Apache-2.0 */
/* The exported C API: submits operations that were made held, all or none. What streams
 * have to finish before is recorded here and not when the operations were made: one
 * event per stream. Stateless. */
#include "runtime/api/api.h"

/* The operation, which the caller may submit now; a reference, or NULL with an
 * error. */
static struct op *op_take_held(struct world *w, hvd_handle h, struct err *err)
{
    struct op *op = api_find(h, err);

    if (!op)
        return NULL;
    if (!coordinator_owns(w->co, op))
        (void)err_set(err, HVD_PRECONDITION,
                      "tensor \"%.200s\": was created before the shutdown",
                      op->req.name);
    else if (!atomic_exchange(&op->is_held, false))
        (void)err_set(err, HVD_INVALID_ARGUMENT,
                      "tensor \"%.200s\": is not held or was submitted before",
                      op->req.name);
    else
        return op;
    op_unref(op);
    return NULL;
}

static int ops_submit_held(struct world *w, struct op **ops, const hvd_handle *h, int n)
{
    struct err *err = api_fresh_error();
    int rc = 0, n_taken = 0;

    while (rc == 0 && n_taken < n) {
        ops[n_taken] = op_take_held(w, h[n_taken], err);
        if (ops[n_taken])
            n_taken++;
        else
            rc = err->code;
    }
    rc = rc < 0 ? rc : api_record(w->co, ops, (uint32_t)n, err);
    rc = rc < 0 ? rc : coordinator_submit(w->co, ops, (uint32_t)n, err);
    for (int i = 0; i < n_taken; i++) {
        if (rc < 0) {
            api_unrecord(ops[i]);
            atomic_store(&ops[i]->is_held, true);
        }
        op_unref(ops[i]);
    }
    return rc;
}

int hvd_submit_held(const hvd_handle *handles, int n)
{
    struct err *err = api_fresh_error();
    AUTOFREE struct op **ops = NULL;
    struct world *w;
    int rc = runtime_get(&w, err);

    if (rc < 0)
        return rc;
    if (n < 1 || !handles)
        rc = err_set(err, HVD_INVALID_ARGUMENT,
                     "hvd_submit_held: n is %d, must be at least 1, with handles", n);
    else if (!(ops = mem_calloc((size_t)n, sizeof(struct op *))))
        rc = err_set(err, HVD_NO_MEMORY, "out of memory for %d operations", n);
    else
        rc = ops_submit_held(w, ops, handles, n);
    runtime_put(w);
    return rc;
}
