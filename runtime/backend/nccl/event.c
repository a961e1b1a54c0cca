/* SPDX-License-Identifier: Apache-2.0 */
/* Counted events. A pool keeps unreferenced events for reuse. It lives until its owner
 * and all events have released it, so an event may outlive the device. A stream that
 * waits for an event took its state when the wait was enqueued, so reusing an event
 * does not disturb it. */
#include "runtime/backend/nccl/event.h"

#include <errno.h>

#include "runtime/backend/nccl/futex.h"
#include "runtime/base/mem.h"

struct event_pool {
    const struct cuda_api *cu;
    cu_ctx ctx;
    _Atomic uint32_t refs; /* the owner's, and one per event that is out */
    _Atomic bool is_forgotten;
    pthread_mutex_t lock; /* free */
    struct device_event *free;
};

struct event_pool *event_pool_new(const struct cuda_api *cu, cu_ctx ctx)
{
    struct event_pool *p = mem_zalloc(sizeof(*p));

    if (!p)
        return NULL;
    p->cu = cu;
    p->ctx = ctx;
    atomic_init(&p->refs, 1);
    (void)pthread_mutex_init(&p->lock, NULL); /* cannot fail on Linux */
    return p;
}

void event_pool_unref(struct event_pool *p)
{
    if (!p || atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) != 1)
        return;
    /* Results are ignored: the driver may have shut down before us. */
    bool is_in = !p->is_forgotten && p->cu->ctx_push(p->ctx) == CU_OK;
    while (p->free) {
        struct device_event *e = p->free;
        p->free = e->next;
        if (is_in)
            (void)p->cu->event_free(e->ev);
        mem_free(e);
    }
    if (is_in)
        (void)p->cu->ctx_pop(&(cu_ctx){NULL});
    (void)pthread_mutex_destroy(&p->lock);
    mem_free(p);
}

void event_pool_forget(struct event_pool *p)
{
    p->is_forgotten = true;
    /* The lock may have been held by a thread that is not in this child. */
    (void)pthread_mutex_init(&p->lock, NULL);
}

static int event_create(struct event_pool *p, cu_event *ret, struct err *err)
{
    int rc = CUDA_TRY(p->cu, ctx_push, err, p->ctx);

    if (rc < 0)
        return rc;
    rc = CUDA_TRY(p->cu, event_new, err, ret, CU_EVENT_DISABLE_TIMING);
    (void)p->cu->ctx_pop(&(cu_ctx){NULL}); /* cannot fail: it was pushed */
    return rc;
}

int event_new(struct event_pool *p, struct device_event **ret, struct err *err)
{
    (void)pthread_mutex_lock(&p->lock);
    struct device_event *e = p->free;
    if (e)
        p->free = e->next;
    (void)pthread_mutex_unlock(&p->lock);
    if (!e) {
        e = mem_zalloc(sizeof(*e));
        if (!e)
            return err_set(err, -ENOMEM, "out of memory for an event");
        int rc = event_create(p, &e->ev, err);
        if (rc < 0) {
            mem_free(e);
            return rc;
        }
    }
    e->next = NULL;
    e->pool = p;
    atomic_store_explicit(&e->refs, 1, memory_order_relaxed);
    atomic_store_explicit(&e->state, EVENT_PENDING, memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
    *ret = e;
    return 0;
}

struct device_event *event_ref(struct device_event *e)
{
    (void)atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
    return e;
}

/* The acq_rel of the last reference orders all uses before the next use of the event.
 */
void event_unref(struct device_event *e)
{
    if (!e || atomic_fetch_sub_explicit(&e->refs, 1, memory_order_acq_rel) != 1)
        return;
    struct event_pool *p = e->pool;
    (void)pthread_mutex_lock(&p->lock);
    e->next = p->free;
    p->free = e;
    (void)pthread_mutex_unlock(&p->lock);
    event_pool_unref(p);
}

/* Release: a thread that reads the state (event_is_done, event_wait_recorded) may use
 * ev. A thread that sleeps has set EVENT_AWAITED in the same word before, so the
 * common case needs no system call. */
static void event_set_state(struct device_event *e, enum event_state s)
{
    if (atomic_exchange_explicit(&e->state, s, memory_order_acq_rel) == EVENT_AWAITED)
        futex_wake(&e->state);
}

int event_record(struct device_event *e, cu_stream s, struct err *err)
{
    int rc = CUDA_TRY(e->pool->cu, event_record, err, e->ev, s);

    if (rc == 0)
        event_set_state(e, EVENT_RECORDED);
    return rc;
}

int event_record_all(struct device_event *e, struct err *err)
{
    const struct event_pool *p = e->pool;
    int rc = CUDA_TRY(p->cu, ctx_record_event, err, p->ctx, e->ev);

    if (rc == 0)
        event_set_state(e, EVENT_RECORDED);
    return rc;
}

void event_record_later(struct device_event *e)
{
    event_set_state(e, EVENT_LATER);
}

static enum event_state event_state_of(const struct device_event *e)
{
    return (enum event_state)atomic_load_explicit(&e->state, memory_order_acquire);
}

static bool state_is_pending(enum event_state s)
{
    return s == EVENT_PENDING || s == EVENT_AWAITED;
}

void event_fail(struct device_event *e)
{
    if (state_is_pending(event_state_of(e)))
        event_set_state(e, EVENT_FAILED);
}

int event_is_done(const struct device_event *e, struct err *err)
{
    switch (event_state_of(e)) {
    case EVENT_PENDING:
    case EVENT_AWAITED:
    case EVENT_LATER:
        return 0;
    case EVENT_FAILED:
        return err_set(err, -ECONNABORTED, "was given up before it was on the device");
    case EVENT_RECORDED:
        break;
    }
    int result = e->pool->cu->event_query(e->ev);
    if (result == CU_NOT_READY)
        return 0;
    return result == CU_OK ? 1 : cuda_fail(e->pool->cu, "cuEventQuery", result, err);
}

bool event_is_ahead(const struct device_event *e)
{
    return event_state_of(e) == EVENT_RECORDED
           && e->pool->cu->event_query(e->ev) == CU_NOT_READY;
}

int event_put_wait(const struct device_event *e, cu_stream s, struct err *err)
{
    if (event_state_of(e) == EVENT_LATER)
        return CUDA_TRY(e->pool->cu, ctx_sync, err);
    if (event_state_of(e) != EVENT_RECORDED)
        return err_set(err, -EINVAL, "wait for an event that was never recorded");
    return CUDA_TRY(e->pool->cu, stream_wait, err, s, e->ev, 0);
}

int event_wait_recorded(struct device_event *e, uint64_t deadline_ns)
{
    enum event_state s;

    while (state_is_pending(s = event_state_of(e))) {
        uint64_t ns = futex_left(deadline_ns);
        uint32_t pending = EVENT_PENDING;
        if (ns == 0)
            return -ETIMEDOUT;
        if (s == EVENT_AWAITED
            || atomic_compare_exchange_strong_explicit(
                &e->state, &pending, EVENT_AWAITED, memory_order_relaxed,
                memory_order_relaxed))
            futex_wait(&e->state, EVENT_AWAITED, ns);
    }
    return s == EVENT_FAILED ? -ECONNABORTED : 0;
}
