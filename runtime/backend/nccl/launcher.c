/* SPDX-License-Identifier: Apache-2.0 */
/* The launcher thread. Jobs run in the order of pushes, so on every rank NCCL is
 * called in the common order of the seat (rule R1), and a blocked call does not block
 * the seat.
 *
 * A stop (launcher_stop) changes device.life; jobs that poll check it. The thread then
 * fails the events of queued jobs, sets GPU_QUIET, and lingers until life is
 * GPU_ENDED: NCCL keeps operations in progress in memory of the thread that started
 * them (to 2.26), and to 2.18 only that thread can abort them (launcher_lend).
 *
 * Pairs: launcher_push releases n_pushed after the queue; the stopping thread releases
 * life; the launcher releases `at` (the thread that bars it sees its work inside), and
 * so does the watcher. */
#include <errno.h>
#include <string.h>

#include "runtime/backend/nccl/futex.h"
#include "runtime/backend/nccl/gpu.h"
#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "runtime/core/compress/codec.h"

#define SPIN_NS 20000

/* --- jobs --- */

static size_t job_align_size(size_t n)
{
    return (n + 15) / 16 * 16;
}

/* Takes n bytes of the job's allocation at *at. */
static void *job_take_bytes(struct gpu_job *job, size_t *at, size_t n)
{
    void *p = (char *)job + *at;

    *at += job_align_size(n);
    return p;
}

static size_t names_bytes(const char *const *names, size_t n)
{
    size_t bytes = 0;

    for (size_t i = 0; names && i < n; i++)
        bytes += strlen(names[i]) + 1;
    return bytes;
}

static void
copy_names(struct gpu_job *job, size_t *at, const char *const *names, size_t n)
{
    const char **v = job_take_bytes(job, at, n * sizeof(*v));
    char *text = job_take_bytes(job, at, names_bytes(names, n));

    for (size_t i = 0; i < n; i++) {
        size_t bytes = strlen(names[i]) + 1;
        v[i] = memcpy(text, names[i], bytes);
        text += bytes;
    }
    job->names = v;
}

static void add_ready(struct gpu_job *job, struct device_event *e)
{
    size_t j = job->n_ready;

    while (e && j > 0 && job->ready[j - 1] != e)
        j--;
    if (e && j == 0)
        job->ready[job->n_ready++] = event_ref(e);
}

/* References to the distinct ready events; neighbours usually share one. */
static void copy_ready(struct gpu_job *job, struct batch_item *items, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        add_ready(job, items[i].ready);
        add_ready(job, items[i].given);
        items[i].ready = items[i].given = NULL;
    }
}

struct gpu_job *job_new(enum job_kind kind,
                        const struct batch *batch,
                        const char *const *names,
                        const struct codec_plan *plans,
                        size_t extra_bytes)
{
    size_t n = batch ? batch->n_items : 0, at = job_align_size(sizeof(struct gpu_job));
    size_t text = names_bytes(names, n), one = sizeof(struct batch_item)
                                               + 4 * sizeof(void *)
                                               + (plans ? sizeof(*plans) : 0);

    if (n > (SIZE_MAX / 2 - text - extra_bytes) / one)
        return NULL;
    size_t bytes = at + n * one + text + extra_bytes + 6 * 16;
    struct gpu_job *job = mem_zalloc(bytes);
    if (!job)
        return NULL;
    job->kind = kind;
    job->size_bytes = bytes;
    if (batch) {
        struct batch_item *items = job_take_bytes(job, &at, n * sizeof(*items));
        memcpy(items, batch->items, n * sizeof(*items));
        job->ready = job_take_bytes(job, &at, 2 * n * sizeof(struct device_event *));
        copy_ready(job, items, n);
        job->batch = *batch;
        job->batch.items = items;
    }
    if (names)
        copy_names(job, &at, names, n);
    if (plans)
        job->plans = memcpy(job_take_bytes(job, &at, n * sizeof(*plans)), plans,
                            n * sizeof(*plans));
    job->extra = job_take_bytes(job, &at, extra_bytes);
    return job;
}

void job_free(struct gpu_job *job)
{
    if (!job)
        return;
    for (size_t i = 0; i < job->n_ready; i++)
        event_unref(job->ready[i]);
    event_unref(job->done);
    mem_free(job);
}

/* --- the thread --- */

/* ends: if the queue is empty, it is closed. */
static struct gpu_job *launcher_pop(struct gpu_launcher *l, bool ends)
{
    (void)pthread_mutex_lock(&l->lock);
    struct gpu_job *job = l->head;
    if (job) {
        l->head = job->next;
        if (!l->head)
            l->tail = &l->head;
    }
    l->is_closed |= !job && ends;
    (void)pthread_mutex_unlock(&l->lock);
    return job;
}

/* The next job; NULL: stop. */
static struct gpu_job *launcher_next(struct gpu_launcher *l)
{
    uint64_t since = clock_now_ns();

    for (;;) {
        uint32_t seen = atomic_load_explicit(&l->n_pushed, memory_order_acquire);
        if (!gpu_runs(l->g))
            return NULL;
        struct gpu_job *job = launcher_pop(l, false);
        if (job)
            return job;
        if (clock_now_ns() - since > SPIN_NS)
            futex_wait(&l->n_pushed, seen, UINT64_MAX);
    }
}

static void job_drop(struct device *g, struct gpu_job *job)
{
    if (g->hooks->drop)
        g->hooks->drop(g, job);
    if (job->done)
        event_fail(job->done);
}

static int job_enqueue(struct device *g, struct gpu_job *job, struct err *err)
{
    int rc = 0;

    atomic_store_explicit(&g->launcher.awaits_user, true, memory_order_relaxed);
    for (size_t i = 0; i < job->n_ready && rc == 0; i++)
        rc = event_put_wait(job->ready[i], job->stream, err);
    atomic_store_explicit(&g->launcher.awaits_user, false, memory_order_relaxed);
    if (rc < 0)
        return gpu_name_rank(g, rc, err);
    if (!launcher_move_to(&g->launcher, LAUNCHER_INSIDE)) {
        job_drop(g, job);
        return err_set(err, -ECONNABORTED, "the device was given up");
    }
    rc = g->hooks->run(g, job, err);
    /* the driver may wait if a queue of its own is full */
    (void)launcher_move_to(&g->launcher, LAUNCHER_WAITING);
    if (rc < 0 || !job->done)
        return rc;
    rc = event_record(job->done, job->stream, err);
    return rc < 0 ? gpu_name_rank(g, rc, err) : 0;
}

static void launcher_run_job(struct gpu_launcher *l, struct gpu_job *job)
{
    struct device *g = l->g;
    struct err err = ERR_INIT;

    (void)launcher_move_to(l, LAUNCHER_WAITING); /* for ready events, without NCCL */
    int rc = job_enqueue(g, job, &err);
    (void)launcher_move_to(l, LAUNCHER_OUTSIDE);
    if (rc < 0) {
        if (job->kind != JOB_CLOSE)
            gpu_broken(g, err.text);
        if (job->done)
            event_fail(job->done);
    }
    /* Also one that failed: its stream waits for its ready events all the same. */
    if (job->done)
        watch_add(&g->watch, job);
    else
        job_free(job);
}

static void launcher_count_run(struct gpu_launcher *l)
{
    (void)atomic_fetch_add_explicit(&l->n_run, 1, memory_order_release);
    futex_wake(&l->n_run);
}

static void launcher_linger(struct gpu_launcher *l)
{
    for (;;) {
        uint32_t seen = atomic_load_explicit(&l->n_pushed, memory_order_acquire);
        /* life first: fn was lent before it ended */
        int life = atomic_load_explicit(&l->g->life, memory_order_acquire);
        void *(*fn)(void *arg) =
            atomic_exchange_explicit(&l->lent, NULL, memory_order_acq_rel);
        if (fn)
            (void)fn(l->lent_arg);
        if (life == GPU_ENDED)
            return;
        futex_wait(&l->n_pushed, seen, UINT64_MAX);
    }
}

static void *launcher_main(void *arg)
{
    struct gpu_launcher *l = arg;
    struct device *g = l->g;
    struct err err = ERR_INIT;
    struct gpu_scope scope;
    struct gpu_job *job;

    (void)pthread_setname_np(pthread_self(), "hvd-gpu"); /* only for people */
    clock_wake_on_time();
    if (gpu_enter(g, &scope, &err) < 0)
        gpu_broken(g, err.text);
    while ((job = launcher_next(l)) != NULL) {
        launcher_run_job(l, job);
        launcher_count_run(l);
    }
    while ((job = launcher_pop(l, true)) != NULL) {
        job_drop(g, job);
        job_free(job);
        launcher_count_run(l);
    }
    int stops = GPU_STOPS; /* the watcher may have left us behind before */
    (void)atomic_compare_exchange_strong_explicit(
        &g->life, &stops, GPU_QUIET, memory_order_acq_rel, memory_order_acquire);
    watch_ring(&g->watch);
    launcher_linger(l);
    gpu_leave(&scope);
    atomic_store_explicit(&l->has_ended, 1, memory_order_release);
    futex_wake(&l->has_ended);
    return NULL;
}

/* --- the seat and other threads --- */

int launcher_start(struct gpu_launcher *l, struct device *g, struct err *err)
{
    *l = (struct gpu_launcher){.g = g};
    l->tail = &l->head;
    (void)pthread_mutex_init(&l->lock, NULL); /* cannot fail on Linux */
    int rc = thread_start(&l->thread, launcher_main, l);
    if (rc != 0)
        return err_errno(err, rc, "a thread for the GPU");
    l->has_thread = true;
    return 0;
}

int launcher_push(struct gpu_launcher *l, struct gpu_job *job, struct err *err)
{
    int rc = gpu_check(l->g, err);

    if (rc < 0)
        return rc;
    job->next = NULL;
    (void)pthread_mutex_lock(&l->lock);
    bool is_closed = l->is_closed;
    if (!is_closed) {
        *l->tail = job;
        l->tail = &job->next;
    }
    (void)pthread_mutex_unlock(&l->lock);
    if (is_closed)
        return gpu_check(l->g, err);
    (void)atomic_fetch_add_explicit(&l->n_pushed, 1, memory_order_release);
    futex_wake(&l->n_pushed);
    return 0;
}

int launcher_drain(struct gpu_launcher *l, uint64_t deadline_ns)
{
    uint32_t n = atomic_load_explicit(&l->n_pushed, memory_order_acquire), seen;

    while ((seen = atomic_load_explicit(&l->n_run, memory_order_acquire)) != n) {
        uint64_t ns = futex_left(deadline_ns);
        if (!gpu_runs(l->g))
            return -ECONNABORTED;
        if (ns == 0)
            return -ETIMEDOUT;
        futex_wait(&l->n_run, seen, ns < 10 * NS_PER_MS ? ns : 10 * NS_PER_MS);
    }
    return 0;
}

void launcher_stop(struct gpu_launcher *l)
{
    int runs = GPU_RUNS;

    if (!atomic_compare_exchange_strong_explicit(
            &l->g->life, &runs, GPU_STOPS, memory_order_acq_rel, memory_order_acquire))
        return;
    /* A value that no thread has seen: a sleeper wakes up. */
    (void)atomic_fetch_add_explicit(&l->n_pushed, 1, memory_order_release);
    (void)atomic_fetch_add_explicit(&l->n_run, 1, memory_order_release);
    futex_wake(&l->n_pushed);
    futex_wake(&l->n_run);
    watch_ring(&l->g->watch);
}

static void launcher_wake(struct gpu_launcher *l)
{
    (void)atomic_fetch_add_explicit(&l->n_pushed, 1, memory_order_release);
    futex_wake(&l->n_pushed);
}

bool launcher_move_to(struct gpu_launcher *l, enum launcher_at to)
{
    int at = atomic_load_explicit(&l->at, memory_order_acquire);

    while (at != LAUNCHER_BARRED)
        if (atomic_compare_exchange_weak_explicit(
                &l->at, &at, (int)to, memory_order_acq_rel, memory_order_acquire))
            return true;
    return false;
}

bool launcher_bar(struct gpu_launcher *l, int at)
{
    l->barred_at = (enum launcher_at)at;
    return atomic_compare_exchange_strong_explicit(
        &l->at, &at, LAUNCHER_BARRED, memory_order_acq_rel, memory_order_acquire);
}

void launcher_lend(struct gpu_launcher *l, void *(*fn)(void *arg), void *arg)
{
    l->lent_arg = arg;
    atomic_store_explicit(&l->lent, fn, memory_order_release);
    launcher_wake(l);
}

void launcher_dismiss(struct gpu_launcher *l)
{
    launcher_wake(l);
}

int launcher_join(struct gpu_launcher *l, uint64_t deadline_ns)
{
    if (!l->has_thread)
        return 0;
    while (atomic_load_explicit(&l->has_ended, memory_order_acquire) == 0) {
        uint64_t ns = futex_left(deadline_ns);
        if (ns == 0)
            return -ETIMEDOUT;
        futex_wait(&l->has_ended, 0, ns);
    }
    (void)pthread_join(l->thread, NULL); /* it is past all of its work */
    l->has_thread = false;
    return 0;
}

void launcher_release(struct gpu_launcher *l)
{
    struct gpu_job *job;

    while (l->tail && (job = launcher_pop(l, true)) != NULL) {
        job_drop(l->g, job);
        job_free(job);
    }
    if (l->tail)
        (void)pthread_mutex_destroy(&l->lock);
    l->tail = NULL;
}
