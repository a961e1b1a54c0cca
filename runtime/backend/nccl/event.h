/* SPDX-License-Identifier: Apache-2.0 */
/* Counted CUDA events and the pool they come from: "ready" of a user's stream, "done"
 * of a ticket. Any thread; the pool's lock is a leaf. All calls into CUDA here expect
 * our context to be current (gpu_enter, or a thread of ours), except new, ref, unref
 * and waits for a record, which need none.
 *
 * The recording thread changes the state once (release), from pending to
 * EVENT_RECORDED, EVENT_LATER or EVENT_FAILED. A thread that reads EVENT_RECORDED
 * (acquire) may use ev. */
#ifndef RUNTIME_BACKEND_NCCL_EVENT_H
#define RUNTIME_BACKEND_NCCL_EVENT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "runtime/backend/nccl/cuda_dl.h"

enum event_state {
    EVENT_PENDING,
    EVENT_AWAITED, /* pending, and a thread sleeps until it is not */
    EVENT_RECORDED,
    EVENT_LATER, /* "all that is in the context" when event_put_wait is called */
    EVENT_FAILED
};

struct event_pool;
struct device_event {
    _Atomic uint32_t refs;
    _Atomic uint32_t state; /* a futex word */
    cu_event ev;
    struct event_pool *pool;
    struct device_event *next; /* the pool's, while free */
};

/* cu and ctx live until the process exits. The caller owns one reference; events hold
 * others. */
struct event_pool *event_pool_new(const struct cuda_api *cu, cu_ctx ctx);
void event_pool_unref(struct event_pool *p); /* accepts NULL */
/* In a forked child: no CUDA calls from here on. */
void event_pool_forget(struct event_pool *p);

/* One reference, EVENT_PENDING. */
int event_new(struct event_pool *p, struct device_event **ret, struct err *err);
struct device_event *event_ref(struct device_event *e);
void event_unref(
    struct device_event *e); /* accepts NULL; also after the device's end */
/* "All work in s so far"; called once. After a failure the event is pending as before:
 * the thread that reports the cause then calls event_fail, so that waiters find the
 * cause. */
int event_record(struct device_event *e, cu_stream s, struct err *err);
/* The same of all streams of the context; needs cuCtxRecordEvent. */
int event_record_all(struct device_event *e, struct err *err);
/* The same without it: a thread that enqueues a wait for the event synchronises then.
 */
void event_record_later(struct device_event *e);
void event_fail(struct device_event *e); /* wakes waiters; nothing if not pending */
/* Has the device reached it? 1, 0 (also while pending), -EIO (sticky) or another error.
 * */
int event_is_done(const struct device_event *e, struct err *err);
/* Is it recorded, and not reached by the device? */
bool event_is_ahead(const struct device_event *e);
/* s waits on the device for a recorded event; for EVENT_LATER this thread waits. */
int event_put_wait(const struct device_event *e, cu_stream s, struct err *err);
/* Sleeps until it is recorded: 0, -ECONNABORTED if it failed, -ETIMEDOUT. */
int event_wait_recorded(struct device_event *e, uint64_t deadline_ns);

#endif
