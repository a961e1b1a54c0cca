/* SPDX-License-Identifier: Apache-2.0 */
/* The launcher thread "hvd-gpu": runs jobs in the order in which the seat pushes them.
 * It is the only thread that calls NCCL while the device runs. For each job it makes
 * job->stream wait for the ready events, calls the hook that runs it, and records
 * job->done on job->stream after it. It spins 20 us for the next job, then sleeps. A job
 * with a done event then belongs to the watcher.
 *
 * The queue is under the launcher's lock, a leaf. */
#ifndef RUNTIME_BACKEND_NCCL_LAUNCHER_H
#define RUNTIME_BACKEND_NCCL_LAUNCHER_H

#include <pthread.h>
#include <stdbool.h>

#include "runtime/backend/backend.h"
#include "runtime/backend/nccl/event.h"

struct comm;
struct codec_plan;
struct device;

enum job_kind {
    JOB_START,
    JOB_SPLIT,
    JOB_BATCH,
    JOB_CODEC,
    JOB_CHECK,
    JOB_REGISTER,
    JOB_CLOSE,
    JOB_KIND_COUNT
};

/* Where the launcher is, for a watcher that waits for it. The launcher changes it
 * (launcher_move_to) until the watcher bars it there. */
enum launcher_at {
    LAUNCHER_OUTSIDE, /* of jobs, or it naps in one: it checks before it continues */
    LAUNCHER_INSIDE,  /* in a job whose calls return by themselves */
    LAUNCHER_WAITING, /* in a call that may never return, or only when it is aborted */
    LAUNCHER_BARRED
};

/* One allocation: items, names and plans are copied into it; the arrays behind
 * batch_item.counts belong to the caller until the ticket is done. */
struct gpu_job {
    enum job_kind kind;
    struct gpu_job *next; /* the launcher's, then the watcher's */
    struct comm *comm;
    uint64_t ticket;
    struct device_event *done; /* a reference; NULL: none. Pending until it has run. */
    bool is_urgent; /* of batch.is_awaited: the watcher checks it more often */
    cu_stream stream;
    uint32_t stream_index;
    struct batch batch; /* JOB_BATCH, JOB_CODEC, JOB_CHECK; items' events are NULL */
    const char *const *names;
    const struct codec_plan *plans;
    uint32_t set;
    struct device_event **ready; /* references to the distinct ones of the items */
    size_t n_ready;
    uint64_t
        reached_ns; /* the watcher's: when it saw that they are reached; 0: not yet */
    void *extra;    /* extra_bytes of zeros, for the creator of the job */
    size_t size_bytes;
};

/* batch NULL: none. names and plans: batch->n_items of them, or NULL. NULL: out of
 * memory. The caller frees or pushes it. */
struct gpu_job *job_new(enum job_kind kind,
                        const struct batch *batch,
                        const char *const *names,
                        const struct codec_plan *plans,
                        size_t extra_bytes);
void job_free(struct gpu_job *job); /* accepts NULL; drops its references */

struct gpu_launcher {
    struct device *g;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock; /* head, tail, is_closed */
    bool is_closed;       /* nothing is pushed any more */
    struct gpu_job *head, **tail;
    _Atomic uint32_t n_pushed;        /* a futex word: the launcher sleeps on it */
    _Atomic uint32_t n_run;           /* likewise: launcher_drain sleeps on it */
    _Atomic uint32_t has_ended;       /* likewise: launcher_join */
    _Atomic int at;                   /* enum launcher_at; acq_rel */
    enum launcher_at barred_at;       /* the watcher's: where it was before */
    _Atomic bool awaits_user;         /* it synchronises with streams of the program */
    void *(*_Atomic lent)(void *arg); /* of launcher_lend; released after lent_arg */
    void *lent_arg;
};

int launcher_start(struct gpu_launcher *l, struct device *g, struct err *err);
/* Takes job over on success. -ECONNABORTED with the cause: the device is broken. The
 * seat. */
int launcher_push(struct gpu_launcher *l, struct gpu_job *job, struct err *err);
/* Waits until all pushed jobs have run: 0, -ETIMEDOUT, -ECONNABORTED if it stops. */
int launcher_drain(struct gpu_launcher *l, uint64_t deadline_ns);
/* Life becomes GPU_STOPS: the launcher leaves its polls, starts no call, fails queued
 * jobs and sets GPU_QUIET. Any thread; idempotent; does not wait. */
void launcher_stop(struct gpu_launcher *l);
/* After launcher_stop: 0 when the thread has ended; -ETIMEDOUT: it is stuck in a call.
 */
int launcher_join(struct gpu_launcher *l, uint64_t deadline_ns);
/* The launcher. false: it is barred, and must not use anything that can be aborted. */
bool launcher_move_to(struct gpu_launcher *l, enum launcher_at to);
/* The watcher: bars the launcher if it is `at`; false: it is somewhere else by now. */
bool launcher_bar(struct gpu_launcher *l, int at);
/* hooks.abort, at most once, if the launcher is quiet or was barred outside: fn(arg)
 * runs on its thread. */
void launcher_lend(struct gpu_launcher *l, void *(*fn)(void *arg), void *arg);
void launcher_dismiss(
    struct gpu_launcher *l); /* life is GPU_ENDED: the thread may end */
void launcher_release(
    struct gpu_launcher *l); /* after it was joined, or never started */

#endif
