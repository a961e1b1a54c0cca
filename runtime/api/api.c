/* SPDX-License-Identifier: Apache-2.0 */
/* The exported C API: checks arguments, calls, keeps the calling thread's last
 * sentence. No logic. What depends on the tensor and may differ between ranks (dtype,
 * shape, operation, root) is judged by negotiation, so that the operation fails on
 * every rank instead of hanging on some. The thread-local error text is the only state
 * here. */
#include "hvd.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/api/runtime.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"

static __thread struct err last;

_Static_assert((int)HVD_UINT8 == (int)DT_U8 && (int)HVD_BOOL == (int)DT_BOOL
                   && (int)HVD_BFLOAT16 == (int)DT_BF16,
               "hvd.h and core/types.h agree on dtypes");
_Static_assert((int)HVD_AVERAGE == (int)OP_AVERAGE
                   && (int)HVD_PRODUCT == (int)OP_PRODUCT,
               "hvd.h and core/types.h agree on operations");
_Static_assert(HVD_MAX_DIMS == TENSOR_MAX_DIMS,
               "hvd.h and core/types.h agree on dimensions");

static struct err *fresh(void)
{
    last = (struct err)ERR_INIT;
    return &last;
}

/* --- life --- */

int hvd_init(const struct hvd_config *config)
{
    struct err *err = fresh();
    struct hvd_config c = {0};

    if (config && config->size_bytes < sizeof(config->size_bytes))
        return err_set(err, HVD_INVALID_ARGUMENT,
                       "hvd_config.size_bytes: %zu, must be sizeof",
                       config->size_bytes);
    if (config)
        memcpy(&c, config,
               config->size_bytes < sizeof(c) ? config->size_bytes : sizeof(c));
    if (c.start_timeout_ms > 86400000)
        return err_set(err, HVD_INVALID_ARGUMENT,
                       "hvd_config.start_timeout_ms: %llu, must be at most 86400000",
                       (unsigned long long)c.start_timeout_ms);
    return runtime_init(c.start_timeout_ms * NS_PER_MS, err);
}

int hvd_shutdown(void)
{
    return runtime_shutdown(fresh());
}

int hvd_is_initialized(void)
{
    struct world *w;
    int r = runtime_get(&w, NULL);

    if (r == 0)
        runtime_put(w);
    return r == 0;
}

static int place_value(size_t offset)
{
    struct world *w;
    uint32_t v;
    int r = runtime_get(&w, fresh());

    if (r < 0)
        return r;
    memcpy(&v, (const char *)&w->contract.place + offset, sizeof(v));
    runtime_put(w);
    return (int)v;
}

int hvd_rank(void)
{
    return place_value(offsetof(struct place, rank));
}

int hvd_size(void)
{
    return place_value(offsetof(struct place, size));
}

int hvd_local_rank(void)
{
    return place_value(offsetof(struct place, local_rank));
}

int hvd_local_size(void)
{
    return place_value(offsetof(struct place, local_size));
}

int hvd_cross_rank(void)
{
    return place_value(offsetof(struct place, cross_rank));
}

int hvd_cross_size(void)
{
    return place_value(offsetof(struct place, cross_size));
}

int hvd_is_homogeneous(void)
{
    struct world *w;
    int r = runtime_get(&w, fresh());

    if (r < 0)
        return r;
    r = w->is_homogeneous;
    runtime_put(w);
    return r;
}

/* --- submitting --- */

static int check_tensor(const struct hvd_tensor *t, struct err *err)
{
    if (!t || t->size_bytes < sizeof(*t))
        return err_set(err, HVD_INVALID_ARGUMENT,
                       "hvd_tensor.size_bytes: must be at least %zu", sizeof(*t));
    if (!t->name || !t->name[0] || strlen(t->name) >= TENSOR_NAME_MAX)
        return err_set(err, HVD_INVALID_ARGUMENT,
                       "hvd_tensor.name: must have 1 to %d bytes", TENSOR_NAME_MAX - 1);
    if (t->dtype < 0 || t->dtype >= DT_COUNT)
        return err_set(err, HVD_INVALID_ARGUMENT,
                       "tensor \"%.200s\": dtype %d is not in 0 to %d", t->name,
                       t->dtype, DT_COUNT - 1);
    if (t->ndim < 0 || t->ndim > HVD_MAX_DIMS || (t->ndim > 0 && !t->shape))
        return err_set(err, HVD_INVALID_ARGUMENT,
                       "tensor \"%.200s\": ndim %d is not in 0 to %d", t->name, t->ndim,
                       HVD_MAX_DIMS);
    return 0;
}

static int
check_memory(const struct hvd_tensor *t, const struct op *op, struct err *err)
{
    bool needs_output =
        op->req.coll == COLL_ALLREDUCE || op->req.coll == COLL_BROADCAST;

    if (t->device != -1)
        return err_set(
            err, HVD_INVALID_ARGUMENT,
            "tensor \"%.200s\": device %d, only host memory (-1) is supported so far",
            t->name, t->device);
    if (op->count > 0 && (!t->data || (needs_output && !t->output)))
        return err_set(err, HVD_INVALID_ARGUMENT,
                       "tensor \"%.200s\": data or output is NULL", t->name);
    return 0;
}

static int fill(struct op *op,
                const struct hvd_tensor *t,
                enum collective coll,
                int process_set,
                struct err *err)
{
    int r = check_tensor(t, err);

    if (r < 0)
        return r;
    if (process_set != 0)
        return err_set(err, HVD_INVALID_ARGUMENT,
                       "process_set: %d, only 0 (all ranks) is supported so far",
                       process_set);
    op->req.coll = coll;
    memcpy(op->req.name, t->name, strlen(t->name) + 1);
    op->done = t->done;
    op->done_arg = t->done_arg;
    op->req.prescale = op->req.postscale = 1.0;
    op->req.op = OP_SUM;
    if (coll == COLL_BARRIER)
        return 0;
    op->req.dtype = (enum dtype)t->dtype;
    op->req.ndim = (uint32_t)t->ndim;
    for (int i = 0; i < t->ndim; i++)
        op->req.shape[i] = t->shape[i];
    if (request_size(&op->req, &op->count, &op->bytes, err) < 0) {
        (void)err_prefix(err, "tensor \"%.200s\"", t->name);
        err->code = HVD_INVALID_ARGUMENT;
        return err->code;
    }
    op->data = t->data;
    op->output = t->output;
    op->ready_event = t->ready_event;
    return check_memory(t, op, err);
}

/* Gives the op a handle and to the coordinator; its reference is taken over. */
static int submit(struct op *op, hvd_handle *ret, struct err *err)
{
    struct world *w;
    hvd_handle h;
    int r = runtime_get(&w, err);

    if (r < 0) {
        op_unref(op);
        return r;
    }
    r = ret ? handles_add(runtime_handles(), op, &h) : -EINVAL;
    if (r < 0) {
        r = r == -EINVAL ? err_set(err, HVD_INVALID_ARGUMENT, "ret_handle: is NULL")
            : r == -E2BIG
                ? err_set(err, HVD_NO_MEMORY, "more than %u handles are not released",
                          HANDLES_MAX)
                : err_set(err, HVD_NO_MEMORY, "out of memory for a handle");
    } else {
        *ret = h; /* before the submit: a callback may ask for it */
        r = coordinator_submit(w->co, op, err);
        if (r < 0)
            (void)handles_remove(runtime_handles(), h);
    }
    op_unref(op);
    runtime_put(w);
    return r;
}

static int start(const struct hvd_tensor *t,
                 enum collective coll,
                 int process_set,
                 struct op **ret,
                 struct err *err)
{
    struct world *w;
    struct op *op;
    int r = runtime_get(&w, err);

    if (r < 0)
        return r;
    runtime_put(w); /* submit() asks again: it may be gone by then */
    op = op_new();
    if (!op)
        return err_set(err, HVD_NO_MEMORY, "out of memory for an operation");
    r = fill(op, t, coll, process_set, err);
    if (r < 0) {
        op_unref(op);
        return r;
    }
    *ret = op;
    return 0;
}

int hvd_allreduce_async(const struct hvd_tensor *t,
                        int op,
                        double prescale,
                        double postscale,
                        int process_set,
                        hvd_handle *ret_handle)
{
    struct err *err = fresh();
    struct op *o;
    int r = start(t, COLL_ALLREDUCE, process_set, &o, err);

    if (r < 0)
        return r;
    if (op < 0 || op >= OP_COUNT) {
        op_unref(o);
        return err_set(err, HVD_INVALID_ARGUMENT,
                       "tensor \"%.200s\": op %d is not in 0 to %d", t->name, op,
                       OP_COUNT - 1);
    }
    o->req.op = (enum reduce_op)op;
    o->req.prescale = prescale;
    o->req.postscale = postscale;
    return submit(o, ret_handle, err);
}

int hvd_allgather_async(const struct hvd_tensor *t,
                        hvd_alloc_fn alloc,
                        void *alloc_arg,
                        int process_set,
                        hvd_handle *ret_handle)
{
    struct err *err = fresh();
    struct op *o;
    int r = start(t, COLL_ALLGATHER, process_set, &o, err);

    if (r < 0)
        return r;
    o->alloc = alloc;
    o->alloc_arg = alloc_arg;
    return submit(o, ret_handle, err);
}

int hvd_broadcast_async(const struct hvd_tensor *t,
                        int root_rank,
                        int process_set,
                        hvd_handle *ret_handle)
{
    struct err *err = fresh();
    struct op *o;
    int r = start(t, COLL_BROADCAST, process_set, &o, err);

    if (r < 0)
        return r;
    if (root_rank < 0) {
        op_unref(o);
        return err_set(err, HVD_INVALID_ARGUMENT,
                       "tensor \"%.200s\": root_rank %d is negative", t->name,
                       root_rank);
    }
    o->req.root = (uint32_t)root_rank;
    return submit(o, ret_handle, err);
}

int hvd_barrier_async(const struct hvd_tensor *t,
                      int process_set,
                      hvd_handle *ret_handle)
{
    struct err *err = fresh();
    struct op *o;
    int r = start(t, COLL_BARRIER, process_set, &o, err);

    return r < 0 ? r : submit(o, ret_handle, err);
}

/* --- ends --- */

static struct op *find(hvd_handle h, struct err *err)
{
    struct op *op;

    if (runtime_is_forked()) {
        struct world *w;

        (void)runtime_get(&w, err); /* for the sentence */
        return NULL;
    }
    op = handles_get(runtime_handles(), h);
    if (!op)
        (void)err_set(err, HVD_INVALID_ARGUMENT, "handle %lld: unknown or released",
                      (long long)h);
    return op;
}

static int tell(const struct op *op, int status, struct err *err)
{
    return status < 0 ? err_set(err, status, "%s", op->error) : status;
}

int hvd_poll(hvd_handle h)
{
    struct err *err = fresh();
    struct op *op = find(h, err);
    int r;

    if (!op)
        return err->code;
    r = tell(op, op_status(op), err);
    op_unref(op);
    return r;
}

int hvd_wait(hvd_handle h, int64_t timeout_ms)
{
    struct err *err = fresh();
    struct op *op = find(h, err);
    uint64_t deadline = UINT64_MAX;
    int r;

    if (!op)
        return err->code;
    if (op_in_callback()) {
        op_unref(op);
        return err_set(err, HVD_INVALID_ARGUMENT, "hvd_wait: called inside a callback");
    }
    if (timeout_ms >= 0 && (uint64_t)timeout_ms < UINT64_MAX / NS_PER_MS / 2)
        deadline = clock_now_ns() + (uint64_t)timeout_ms * NS_PER_MS;
    r = coordinator_wait(op->co, op, deadline);
    if (r == HVD_IN_PROGRESS)
        r = err_set(err, HVD_TIMEOUT, "tensor \"%.200s\" is not done after %lld ms",
                    op->req.name, (long long)timeout_ms);
    else
        r = tell(op, r, err);
    op_unref(op);
    return r;
}

int hvd_result(hvd_handle h, void **ret_data, int *ret_ndim, int64_t *ret_shape)
{
    struct err *err = fresh();
    struct op *op = find(h, err);
    int r;

    if (!op)
        return err->code;
    r = tell(op, op_status(op), err);
    if (r == HVD_OK && op->req.coll != COLL_ALLGATHER)
        r = err_set(err, HVD_INVALID_ARGUMENT,
                    "tensor \"%.200s\": only an allgather has a result", op->req.name);
    if (r == HVD_OK) {
        *ret_data = op->result;
        *ret_ndim = op->result_ndim;
        memcpy(ret_shape, op->result_shape,
               (size_t)op->result_ndim * sizeof(*ret_shape));
    }
    op_unref(op);
    return r;
}

int hvd_release(hvd_handle h)
{
    struct err *err = fresh();

    if (runtime_is_forked())
        return 0; /* nothing of ours is left in a forked child */
    if (handles_remove(runtime_handles(), h) < 0)
        return err_set(err, HVD_INVALID_ARGUMENT, "handle %lld: unknown or released",
                       (long long)h);
    return 0;
}

/* --- about --- */

const char *hvd_last_error(void)
{
    return last.text;
}

const char *hvd_version(void)
{
    return HVD_VERSION_STRING;
}

size_t hvd_describe(char *buf, size_t n)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};
    struct world *w = NULL;
    const struct place *p;

    strbuf_init(&b, 65536);
    if (runtime_get(&w, NULL) < 0) {
        strbuf_puts(&b, "{\"initialized\":false}");
    } else {
        p = &w->contract.place;
        strbuf_printf(
            &b,
            "{\"initialized\":true,\"rank\":%u,\"size\":%u,\"local_rank\":%u,"
            "\"local_size\":%u,\"cross_rank\":%u,\"cross_size\":%u,\"launcher\":\"%s\","
            "\"backend\":\"%s\",\"address\":\"%s\",\"control\":[",
            p->rank, p->size, p->local_rank, p->local_size, p->cross_rank,
            p->cross_size, launcher_name(w->contract.launcher), w->backend->ops->name,
            w->local_addr);
        for (uint32_t r = 0; r < p->size && r < 1024; r++)
            strbuf_printf(&b, "%s\"%s\"", r ? "," : "",
                          control_transport(w->control, r));
        strbuf_puts(&b, "]}");
    }
    runtime_put(w);
    if (n > 0)
        (void)snprintf(buf, n, "%s", strbuf_str(&b));
    return b.n;
}
