/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of device_ops that need no communicator: events of users' streams, waits for
 * these, memory for results. Any thread calls them, except for the memory: the seat.
 * None waits for the device, except a record of all streams with an old driver. */
#include <errno.h>
#include <time.h>

#include "runtime/backend/nccl/gpu.h"
#include "runtime/base/clock.h"

#define WAIT_SLICE_NS (100 * NS_PER_MS)
#define LOCK_NAP_NS   100000

static bool is_all(const void *stream)
{
    return stream == DEVICE_STREAM_ALL || stream == DEVICE_STREAM_ALL_LATER;
}

static int err_set_captured(struct err *err)
{
    return err_set(
        err, -EBUSY,
        "the stream is being captured into a CUDA graph; call hvd outside of "
        "it, or set HVD_GPU_GRAPH=1 for our own graphs");
}

static int refuse_capture(struct device *g, cu_stream s, struct err *err)
{
    int status = CU_CAPTURE_NONE, result = g->cu->stream_capturing(s, &status);

    if (result == CU_CAPTURE_IMPLICIT || status != CU_CAPTURE_NONE)
        return err_set_captured(err);
    return result == CU_OK ? 0 : cuda_fail(g->cu, "cuStreamIsCapturing", result, err);
}

static int sync_all(struct device *g, struct device_event *e, struct err *err)
{
    int rc = CUDA_TRY(g->cu, ctx_sync, err);

    return rc < 0 ? rc : event_record(e, NULL, err);
}

/* The launcher may be left behind while its capture holds the lock. */
static int row_lock_whole(struct device *g, struct err *err)
{
    int rc = 0;

    while (rc == 0 && pthread_mutex_trylock(&g->whole) != 0) {
        (void)nanosleep(&(struct timespec){0, LOCK_NAP_NS}, NULL); /* early is fine */
        rc = gpu_check(g, err);
    }
    return rc;
}

/* Records all streams: by an event of the context; else by waiting for all of them,
 * here (an event of an empty stream then serves as well as any) or in the launcher.
 * Also in the launcher if that captures, because the seat must not wait. */
static int record_all(struct device *g,
                      const void *stream,
                      struct device_event *e,
                      struct err *err)
{
    const bool has_event = g->cu->ctx_record_event && !g->config.syncs_ready;
    int rc = 0;

    if (stream == DEVICE_STREAM_ALL) {
        rc = row_lock_whole(g, err);
    } else if (!has_event || pthread_mutex_trylock(&g->whole) != 0) {
        event_record_later(e);
        return 0;
    }
    if (rc < 0)
        return rc;
    rc = has_event ? event_record_all(e, err) : sync_all(g, e, err);
    (void)pthread_mutex_unlock(&g->whole);
    return rc;
}

/* A call of a user's thread failed with r. If the context is lost, all ranks must
 * receive the cause, not only the caller. */
static int gpu_report_lost(struct device *g, int r, struct err *err)
{
    if (r != -EIO)
        return r;
    (void)gpu_name_rank(g, r, err);
    gpu_broken(g, err ? err->text : "the CUDA context is lost");
    (void)gpu_check(g, err); /* with the XID, or an earlier cause */
    return r;
}

int gpu_record(struct device *g,
               void *stream,
               struct device_event **ret,
               struct err *err)
{
    struct device_event *e = NULL;
    struct gpu_scope scope;
    int rc = gpu_check(g, err);

    if (rc == 0)
        rc = gpu_enter(g, &scope, err);
    if (rc < 0)
        return rc;
    rc = is_all(stream) ? 0 : refuse_capture(g, stream, err);
    if (rc == 0)
        rc = event_new(g->events, &e, err);
    if (rc == 0)
        rc = is_all(stream) ? record_all(g, stream, e, err)
                            : event_record(e, stream, err);
    gpu_leave(&scope);
    if (rc < 0) {
        event_unref(e);
        return rc == -EBUSY ? err_set_captured(err) : gpu_report_lost(g, rc, err);
    }
    *ret = e;
    return 0;
}

/* The launcher may be stuck in a call, and left behind with the event. */
static int wait_recorded(struct device *g, struct device_event *e, uint64_t deadline_ns)
{
    for (;;) {
        const bool has_ended =
            atomic_load_explicit(&g->life, memory_order_acquire) == GPU_ENDED;
        const uint64_t now_ns = clock_now_ns();
        const bool is_last = deadline_ns < now_ns + WAIT_SLICE_NS;
        int rc = event_wait_recorded(e, has_ended ? now_ns
                                        : is_last ? deadline_ns
                                                  : now_ns + WAIT_SLICE_NS);

        if (rc != -ETIMEDOUT)
            return rc;
        if (has_ended || is_last)
            return has_ended ? -ECONNABORTED : rc;
    }
}

int gpu_wait(struct device *g,
             struct device_event *e,
             void *stream,
             uint64_t deadline_ns,
             struct err *err)
{
    struct gpu_scope scope;
    int rc = wait_recorded(g, e, deadline_ns);

    if (rc == -ETIMEDOUT)
        return err_set(err, rc, "the work was not yet put on the GPU");
    if (rc < 0)
        return gpu_check(g, err) < 0
                   ? -ECONNABORTED
                   : err_set(err, -ECONNABORTED, "the work was given up");
    rc = gpu_enter(g, &scope, err);
    if (rc < 0)
        return rc;
    cu_stream s = is_all(stream) ? NULL : stream;
    rc = refuse_capture(g, s, err);
    if (rc == 0)
        rc = event_put_wait(e, s, err);
    gpu_leave(&scope);
    return gpu_report_lost(g, rc, err);
}

/* On a stream without other work: the job's stream may be captured into a graph
 * meanwhile, and neither we nor the pool must wait for work on the submitter's. */
int gpu_alloc(struct device *g,
              uint64_t bytes,
              void **ret,
              struct device_event **ret_given,
              struct err *err)
{
    struct device_event *e = NULL;
    struct gpu_scope scope;
    cu_ptr p = 0;
    int rc = gpu_enter(g, &scope, err);

    if (rc < 0)
        return rc;
    rc = event_new(g->events, &e, err);
    if (rc == 0)
        rc = memory_take(g->memory, bytes, memory_own(g->memory), &p, err);
    if (rc == 0)
        rc = event_record(e, memory_own(g->memory), err);
    gpu_leave(&scope);
    if (rc < 0) {
        event_unref(e);
        return gpu_report_lost(g, rc,
                               err); /* in a lost context nothing is given back */
    }
    *ret = (void *)(uintptr_t)p;
    *ret_given = e;
    return 0;
}
