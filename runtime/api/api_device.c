/* SPDX-License-Identifier: Apache-2.0 */
/* The exported C API of tensors on GPUs: what streams wait for before and after an
 * operation, and queries.
 *
 * hvd_wait_on_stream has two halves. First the coordinator waits until the batch is
 * posted, as in any wait. Then the device makes the stream wait for the batch's event.
 * The second half needs the open device, which belongs to the world; the caller holds a
 * reference to the world meanwhile. An operation of a former world has ended.
 * Stateless. */
#include "runtime/api/api.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* --- before --- */

static int status_of_device_error(int r)
{
    switch (r) {
    case -ENOMEM:
        return HVD_NO_MEMORY;
    case -ECONNABORTED:
        return HVD_ABORTED;
    case -ETIMEDOUT:
        return HVD_TIMEOUT;
    case -EBUSY:
    case -EINVAL:
        return HVD_INVALID_ARGUMENT;
    default:
        return HVD_INTERNAL;
    }
}

void api_unrecord(struct op *op)
{
    if (op->gpu)
        op->gpu->event_unref(op->ready);
    op->ready = NULL;
}

static int op_record_ready(struct op *const *ops, uint32_t at, struct err *err)
{
    struct op *op = ops[at];
    int rc;

    for (uint32_t i = 0; i < at; i++) {
        if (!ops[i]->ready || ops[i]->stream != op->stream)
            continue;
        op->ready = op->gpu->event_ref(ops[i]->ready);
        return 0;
    }
    rc = op->gpu->record(op->device, op->stream, &op->ready, err);
    if (rc == -ECONNABORTED)
        /* the world has failed or will fail with this op, and that error names the
         * cause */
        return 0;
    if (rc < 0)
        (void)err_prefix(err, "tensor \"%.200s\"", op->req.name);
    return rc < 0 ? err_recode(err, status_of_device_error(rc)) : 0;
}

int api_record(struct coordinator *co,
               struct op *const *ops,
               uint32_t n,
               struct err *err)
{
    int rc = 0;

    for (uint32_t i = 0; i < n && rc == 0; i++)
        if (ops[i]->gpu) {
            rc = api_region(co, ops[i], err);
            rc = rc < 0 ? rc : op_record_ready(ops, i, err);
        }
    for (uint32_t i = 0; i < n && rc < 0; i++)
        api_unrecord(ops[i]);
    return rc;
}

/* --- after --- */

static int op_report_timeout(const struct op *op, struct err *err)
{
    return err_set(err, HVD_TIMEOUT, "tensor \"%.200s\" was not posted in time",
                   op->req.name);
}

/* *ret: a reference to what the stream has to wait for; NULL: nothing. */
static int op_wait_posted(struct op *op,
                          uint64_t deadline_ns,
                          struct device_event **ret,
                          struct err *err)
{
    enum op_state state = op->gpu ? OP_POSTED : OP_ENDED;
    int status = coordinator_wait(op, state, deadline_ns);

    *ret = NULL;
    if (status != HVD_IN_PROGRESS)
        return api_report_status(op, status, err);
    if (!op_has_reached(op, state))
        return op_report_timeout(op, err);
    if (op->posted)
        *ret = op->gpu->event_ref(op->posted);
    return 0;
}

/* No world, or another one: the op ends, or has ended. */
static int op_wait_ended(struct op *op, uint64_t deadline_ns, struct err *err)
{
    int status = coordinator_wait(op, OP_ENDED, deadline_ns);

    return status == HVD_IN_PROGRESS ? op_report_timeout(op, err)
                                     : api_report_status(op, status, err);
}

struct stream_wait { /* of one call */
    struct world *w; /* a reference; may be NULL */
    void *stream;
    uint64_t deadline_ns;
    struct device_event *last; /* the stream waits for it already; a reference */
};

static int stream_wait_op(struct stream_wait *s, struct op *op, struct err *err)
{
    struct device_event *event;
    int rc;

    atomic_store_explicit(&op->read_in, s->stream, memory_order_relaxed);
    /* HVD_NANCHECK: otherwise later work of the stream would use the NaN. */
    if (!s->w || !coordinator_owns(s->w->co, op) || s->w->settings.nancheck)
        return op_wait_ended(op, s->deadline_ns, err);
    rc = op_wait_posted(op, s->deadline_ns, &event, err);
    if (rc < 0 || !event)
        return rc;
    if (event == s->last) {
        op->gpu->event_unref(event);
        return 0;
    }
    rc = op->gpu->wait(op->device, event, s->stream, s->deadline_ns, err);
    op->gpu->event_unref(s->last);
    s->last = event;
    if (rc
        /* the op's end has the cause, after the other ranks have received it */
        == -ECONNABORTED)
        return op_wait_ended(op, s->deadline_ns, err);
    if (rc < 0)
        (void)err_prefix(err, "tensor \"%.200s\"", op->req.name);
    return rc < 0 ? err_recode(err, status_of_device_error(rc)) : 0;
}

static int handles_wait_all(const char *call,
                            const hvd_handle *handles,
                            int n,
                            void *stream,
                            int64_t timeout_ms)
{
    struct err *err = api_fresh_error();
    struct stream_wait s = {.stream = stream, .deadline_ns = api_deadline(timeout_ms)};
    const struct device_ops *gpu = NULL;
    int rc = 0;

    if (runtime_get(&s.w, NULL) < 0)
        s.w = NULL;
    for (int i = 0; i < n && rc == 0; i++) {
        struct op *op = api_find(handles[i], err);

        if (!op) {
            rc = err->code;
            break;
        }
        rc = api_may_wait(op, call, err);
        rc = rc < 0 ? rc : stream_wait_op(&s, op, err);
        if (op->gpu)
            gpu = op->gpu;
        op_unref(op);
    }
    if (gpu)
        gpu->event_unref(s.last);
    runtime_put(s.w);
    return rc;
}

int hvd_wait_on_stream(hvd_handle h, void *stream, int64_t timeout_ms)
{
    return handles_wait_all("hvd_wait_on_stream", &h, 1, stream, timeout_ms);
}

int hvd_wait_many(const hvd_handle *handles, int n, void *stream, int64_t timeout_ms)
{
    if (n < 0 || (n > 0 && !handles))
        return err_set(api_fresh_error(), HVD_INVALID_ARGUMENT,
                       "hvd_wait_many: n is %d, must be at least 0, with handles", n);
    return handles_wait_all("hvd_wait_many", handles, n, stream, timeout_ms);
}

int hvd_result_device(hvd_handle h, int *ret_device)
{
    struct err *err = api_fresh_error();
    struct op *op = api_find(h, err);

    if (!op)
        return err->code;
    *ret_device = op->gpu ? op->ordinal : HVD_DEVICE_HOST;
    op_unref(op);
    return 0;
}

/* --- what there is --- */

static const char *env_get(void *arg, const char *name)
{
    (void)arg;
    return getenv(name);
}

size_t hvd_device_report(char *buf, size_t n)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};
    static const struct settings none;
    struct settings s = none;

    strbuf_init(&b, 65536);
    (void)settings_read(env_get, NULL, &s, NULL); /* hvd_init reports errors */
    device_report_text(&s.gpu, runtime_nccl_hint(), &b);
    if (n > 0)
        (void)snprintf(buf, n, "%s", strbuf_str(&b));
    return b.n;
}

void hvd_device_hint(const char *nccl_path)
{
    runtime_set_nccl_hint(nccl_path ? nccl_path : "");
}
