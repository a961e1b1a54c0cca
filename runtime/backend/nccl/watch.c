/* SPDX-License-Identifier: Apache-2.0 */
/* The watcher thread. It checks the oldest done event of each stream, because they
 * finish in order; the rest of its rounds is for failures. It polls instead of using a
 * host function on the stream, which would hold up the stream at each batch.
 *
 * It ends after hooks.abort (life is GPU_ENDED then): nothing is left to watch. */
#include "runtime/backend/nccl/watch.h"

#include <errno.h>

#include "runtime/backend/nccl/futex.h"
#include "runtime/backend/nccl/gpu.h"
#include "runtime/backend/nccl/xid.h"
#include "runtime/base/thread.h"

#define URGENT_NS 50000ull
#define IDLY_NS   500000ull
#define SLOW_NS   (NS_PER_MS) /* the longest pauses: urgent, and not */
#define LAZY_NS   (5 * NS_PER_MS)
#define SHARE     16 /* of the time in which nothing has finished */
#define LOOK_NS   (100 * NS_PER_MS)
#define HANGS_NS  (200 * NS_PER_MS) /* the launcher's time to stop, if it may hang */
#define QUIET_NS  (500 * NS_PER_MS) /* otherwise: it needs a processor */
#define PEEK_NS   (20 * NS_PER_MS)

void watch_add(struct gpu_watch *w, struct gpu_job *job)
{
    const uint32_t index = job->stream_index;
    uint64_t now = clock_now_ns();

    job->next = NULL;
    (void)pthread_mutex_lock(&w->lock);
    *w->tail[index] = job;
    w->tail[index] = &job->next;
    bool is_news = w->n_flights++ == 0 || (job->is_urgent && w->n_urgent == 0)
                   || now - w->moved_ns > SHARE * IDLY_NS; /* the pause is long */
    w->n_urgent += job->is_urgent;
    w->moved_ns = now;
    (void)pthread_mutex_unlock(&w->lock);
    if (is_news)
        watch_ring(w);
}

void watch_ring(struct gpu_watch *w)
{
    (void)atomic_fetch_add_explicit(&w->bell, 1, memory_order_release);
    futex_wake(&w->bell);
}

void watch_await(struct gpu_watch *w, bool begins)
{
    if (!begins)
        (void)atomic_fetch_sub_explicit(&w->n_awaiting, 1, memory_order_relaxed);
    else if (atomic_fetch_add_explicit(&w->n_awaiting, 1, memory_order_relaxed) == 0)
        watch_ring(w); /* releases n_awaiting */
}

static struct gpu_job *watch_oldest(struct gpu_watch *w, uint32_t index)
{
    (void)pthread_mutex_lock(&w->lock);
    struct gpu_job *job = w->head[index];
    (void)pthread_mutex_unlock(&w->lock);
    return job;
}

static void free_oldest(struct gpu_watch *w, uint32_t index)
{
    (void)pthread_mutex_lock(&w->lock);
    struct gpu_job *job = w->head[index];
    w->head[index] = job->next;
    if (!job->next)
        w->tail[index] = &w->head[index];
    w->n_flights--;
    w->n_urgent -= job->is_urgent;
    w->moved_ns = clock_now_ns();
    (void)pthread_mutex_unlock(&w->lock);
    job_free(job);
}

static bool job_awaits_user(const struct gpu_job *job)
{
    for (size_t i = 0; i < job->n_ready; i++)
        if (event_is_ahead(job->ready[i]))
            return true;
    return false;
}

/* Later jobs do not count: their ready events may wait for this one. */
bool watch_awaits_user(struct gpu_watch *w)
{
    bool awaits = false;

    (void)pthread_mutex_lock(&w->lock);
    for (uint32_t i = 0; i < GPU_MAX_STREAMS && !awaits; i++) {
        const struct gpu_job *job = w->head[i];

        while (job && event_is_done(job->done, NULL) == 1)
            job = job->next;
        awaits = job && job_awaits_user(job);
    }
    (void)pthread_mutex_unlock(&w->lock);
    return awaits;
}

/* When the device reached the ready events of a stream's jobs, in order: a job behind one
 * that waits does not begin earlier. Its lateness is what other ranks wait for. */
static void look_at_ready(struct gpu_watch *w, uint32_t index)
{
    struct gpu_job *job = watch_oldest(w, index);

    while (job && (job->reached_ns > 0 || !job_awaits_user(job))) {
        if (job->reached_ns == 0)
            job->reached_ns = clock_now_ns();
        (void)pthread_mutex_lock(&w->lock); /* the launcher appends */
        job = job->next;
        (void)pthread_mutex_unlock(&w->lock);
    }
}

/* Batches of which this rank has tensors. One that was added after look_at_ready, and is
 * done already, has waited for nobody. */
static void count_ready(struct device *g, const struct gpu_job *job)
{
    if (job->n_ready > 0 && job->reached_ns > 0
        && (job->kind == JOB_BATCH || job->kind == JOB_CODEC))
        gpu_count(g, GPU_READY_NS, clock_now_ns() - job->reached_ns);
}

/* Removes finished batches; true: at least one. Only the watcher removes from the
 * lists, so the oldest one stays while it checks. */
static bool look_at_flights(struct gpu_watch *w)
{
    struct device *g = w->g;
    bool has_ended = false;

    for (uint32_t i = 0; i < GPU_MAX_STREAMS; i++) {
        struct gpu_job *job;

        look_at_ready(w, i);
        while ((job = watch_oldest(w, i)) != NULL) {
            struct err err = ERR_INIT;
            int rc = event_is_done(job->done, &err);
            if (rc < 0) {
                (void)gpu_name_rank(g, rc, &err);
                gpu_broken(g, err.text);
                return false;
            }
            if (rc == 0)
                break;
            count_ready(g, job);
            free_oldest(w, i);
            has_ended = true;
        }
    }
    return has_ended;
}

static void look_for_failures(struct device *g)
{
    struct err err = ERR_INIT;

    if (xids_are_fatal(g->xids)) { /* kernels may never return, and CUDA may not report
                                      it */
        gpu_broken(g, "work on the GPU cannot end");
        return;
    }
    xids_request_query(g->xids);
    if (g->hooks->look && g->hooks->look(g, &err) < 0)
        gpu_broken(g, err.text);
}

static uint64_t pause_ns(struct gpu_watch *w, uint64_t now)
{
    (void)pthread_mutex_lock(&w->lock);
    uint32_t n = w->n_flights, n_urgent = w->n_urgent;
    uint64_t ns = now > w->moved_ns ? (now - w->moved_ns) / SHARE : 0;
    (void)pthread_mutex_unlock(&w->lock);
    if (n == 0)
        return w->g->looks ? LOOK_NS : UINT64_MAX;
    if (n_urgent > 0 || atomic_load_explicit(&w->n_awaiting, memory_order_relaxed) > 0)
        return ns < URGENT_NS ? URGENT_NS : ns < SLOW_NS ? ns : SLOW_NS;
    return ns < IDLY_NS ? IDLY_NS : ns < LAZY_NS ? ns : LAZY_NS;
}

static void watch_running(struct gpu_watch *w)
{
    struct device *g = w->g;
    uint64_t looked_ns = 0;

    for (;;) {
        uint32_t seen = atomic_load_explicit(&w->bell, memory_order_acquire);
        if (!gpu_runs(g))
            return;
        if (look_at_flights(w) && g->config.wake)
            g->config.wake(g->config.arg);
        uint64_t now = clock_now_ns(), ns = pause_ns(w, now);
        if (ns != UINT64_MAX
            && (now - looked_ns >= LOOK_NS || xids_are_fatal(g->xids))) {
            look_for_failures(g);
            looked_ns = now;
        }
        futex_wait(&w->bell, seen, ns);
    }
}

/* Waits until the launcher is out, or its time is over; true: it is out. A launcher
 * outside a call that may hang only needs a processor, and aborting under it might
 * crash the process: it gets more time. */
static bool wait_for_quiet(struct gpu_watch *w)
{
    struct gpu_launcher *l = &w->g->launcher;
    const uint64_t began_ns = clock_now_ns();
    int life = GPU_STOPS;

    for (;;) {
        uint32_t seen = atomic_load_explicit(&w->bell, memory_order_acquire);
        if (atomic_load_explicit(&w->g->life, memory_order_acquire) != GPU_STOPS)
            return true;
        int at = atomic_load_explicit(&l->at, memory_order_acquire);
        uint64_t ns =
            futex_left(began_ns + (at == LAUNCHER_WAITING ? HANGS_NS : QUIET_NS));
        if (ns == 0 && launcher_bar(l, at))
            break;
        if (ns > 0)
            futex_wait(&w->bell, seen, ns < PEEK_NS ? ns : PEEK_NS);
    }
    /* Communicators belong to the watcher from here on, even if the launcher returns
     * now. */
    return !atomic_compare_exchange_strong_explicit(
        &w->g->life, &life, GPU_QUIET, memory_order_acq_rel, memory_order_acquire);
}

static void *watch_main(void *arg)
{
    struct gpu_watch *w = arg;
    struct device *g = w->g;
    struct err err = ERR_INIT;
    struct gpu_scope scope;

    (void)pthread_setname_np(pthread_self(), "hvd-gpu-watch"); /* only for people */
    clock_wake_on_time();
    if (gpu_enter(g, &scope, &err) < 0)
        gpu_broken(g, err.text);
    watch_running(w);
    bool is_quiet = wait_for_quiet(w);
    if (g->hooks->abort)
        g->hooks->abort(g, is_quiet);
    atomic_store_explicit(&g->life, GPU_ENDED, memory_order_release);
    launcher_dismiss(&g->launcher);
    if (g->config.wake)
        g->config.wake(g->config.arg);
    gpu_leave(&scope);
    atomic_store_explicit(&w->has_ended, 1, memory_order_release);
    futex_wake(&w->has_ended);
    return NULL;
}

void watch_init(struct gpu_watch *w, struct device *g)
{
    *w = (struct gpu_watch){.g = g};
    for (uint32_t i = 0; i < GPU_MAX_STREAMS; i++)
        w->tail[i] = &w->head[i];
    (void)pthread_mutex_init(&w->lock, NULL); /* cannot fail on Linux */
}

int watch_start(struct gpu_watch *w, struct err *err)
{
    int rc = thread_start(&w->thread, watch_main, w);

    if (rc != 0)
        return err_errno(err, rc, "a thread for the GPU");
    w->has_thread = true;
    return 0;
}

int watch_join(struct gpu_watch *w, uint64_t deadline_ns)
{
    if (!w->has_thread)
        return 0;
    while (atomic_load_explicit(&w->has_ended, memory_order_acquire) == 0) {
        uint64_t ns = futex_left(deadline_ns);
        if (ns == 0)
            return -ETIMEDOUT;
        futex_wait(&w->has_ended, 0, ns);
    }
    (void)pthread_join(w->thread, NULL); /* it is past all of its work */
    w->has_thread = false;
    return 0;
}

void watch_release(struct gpu_watch *w)
{
    for (uint32_t i = 0; i < GPU_MAX_STREAMS; i++)
        while (w->head[i])
            free_oldest(w, i);
    (void)pthread_mutex_destroy(&w->lock);
}
