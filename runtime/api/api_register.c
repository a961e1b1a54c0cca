/* SPDX-License-Identifier: Apache-2.0 */
/* Registered buffers in the exported API. The region of a tensor is looked up when it
 * is submitted, so that all ranks can compare it. hvd_deregister waits until the buffer
 * is free. Stateless. */
#include "runtime/api/api.h"

#include <errno.h>
#include <string.h>

#include "runtime/core/mismatch.h"

static const char NAME[] = OP_RESERVED_PREFIX "deregister";

/* The memory that the batch reads and writes. A result has its own memory, and the
 * unused side of a pair is not compared. */
static void
op_used_memory(const struct op *op, const void **ret_in, const void **ret_out)
{
    const bool is_root = op->me == op->root;

    *ret_in = op->req.coll == COLL_BROADCAST && !is_root ? NULL : op->data;
    *ret_out = op->req.coll == COLL_ALLREDUCE || op->req.coll == COLL_BROADCAST
                       || (op->req.coll == COLL_REDUCE && is_root)
                   ? op->output
                   : NULL;
}

int api_region(struct coordinator *co, struct op *op, struct err *err)
{
    struct regions *r = coordinator_regions(co);
    const uint32_t set = op->req.process_set;
    const void *in, *out;
    uint32_t a, b;

    if (op->req.coll == COLL_SENDRECV || op->req.coll == COLL_REGISTER)
        return 0;
    if (op->count == 0 && !request_has_rows(&op->req))
        return 0; /* empty on all ranks, whatever its address */
    op_used_memory(op, &in, &out);
    a = in ? regions_find(r, set, in, op->bytes) : 0;
    b = out && out != in ? regions_find(r, set, out, op->bytes) : a;
    if (in && a != b)
        return err_set(err, HVD_INVALID_ARGUMENT,
                       "tensor \"%.200s\": data lies in registered buffer %u, output "
                       "in %u (0: in none): both must lie in the same one",
                       op->req.name, a, b);
    op->req.region = b;
    return 0;
}

static struct op *op_new_deregister(struct world *w, uint32_t set, uint32_t number)
{
    struct op *op = op_new();

    if (!op)
        return NULL;
    op->req.coll = COLL_REGISTER;
    op->req.place = PLACE_CUDA;
    op->req.op = OP_SUM;
    op->req.prescale = op->req.postscale = 1.0;
    op->req.process_set = set;
    op->req.root = number;
    op->root = OP_NO_MEMBER;
    memcpy(op->req.name, NAME, sizeof(NAME));
    if (sets_place(&w->sets, set, &op->n_members, &op->me) < 0)
        op->me = SET_NOT_IN; /* removed meanwhile: negotiation reports it */
    return op;
}

/* The submitted operation, owned by the caller; with a handle if ret_handle is not
 * NULL. */
static int deregister_submit(struct world *w,
                             const void *data,
                             int process_set,
                             hvd_handle *ret_handle,
                             struct op **ret,
                             struct err *err)
{
    const uint32_t set = (uint32_t)process_set;
    uint32_t number =
        process_set < 0 ? 0 : regions_find(coordinator_regions(w->co), set, data, 1);
    struct op *op;
    int rc = 0;

    if (number == 0)
        return err_set(err, HVD_INVALID_ARGUMENT,
                       "hvd_deregister: data lies in no registered buffer of process "
                       "set %d",
                       process_set);
    op = op_new_deregister(w, set, number);
    if (!op)
        return err_set(err, HVD_NO_MEMORY, "out of memory for an operation");
    coordinator_own(w->co, op);
    if (ret_handle && handles_add(runtime_handles(), op, ret_handle) < 0)
        rc = err_set(err, HVD_NO_MEMORY, "out of memory for a handle");
    else if ((rc = coordinator_submit(w->co, &op, 1, err)) < 0 && ret_handle)
        (void)handles_remove(runtime_handles(), *ret_handle);
    if (rc < 0)
        op_unref(op);
    else
        *ret = op;
    return rc;
}

int hvd_deregister_async(const void *data, int process_set, hvd_handle *ret_handle)
{
    struct err *err = api_fresh_error();
    struct op *op;
    struct world *w;
    int rc = ret_handle ? runtime_get(&w, err)
                        : err_set(err, HVD_INVALID_ARGUMENT, "ret_handle: is NULL");

    if (rc < 0)
        return rc;
    rc = deregister_submit(w, data, process_set, ret_handle, &op, err);
    if (rc == 0)
        op_unref(op);
    runtime_put(w);
    return rc;
}

int hvd_deregister(const void *data, int process_set)
{
    struct err *err = api_fresh_error();
    struct op *op;
    struct world *w;
    int rc = runtime_get(&w, err);

    if (rc < 0)
        return rc;
    if (op_in_callback())
        rc = err_set(err, HVD_INVALID_ARGUMENT,
                     "hvd_deregister: called inside a callback");
    else if ((rc = deregister_submit(w, data, process_set, NULL, &op, err)) == 0) {
        rc = coordinator_wait(op, OP_ENDED, UINT64_MAX);
        if (rc < 0 && op_status(op) == rc)
            rc = err_set(err, rc, "%s", op->error);
        op_unref(op);
    }
    runtime_put(w);
    return rc;
}
