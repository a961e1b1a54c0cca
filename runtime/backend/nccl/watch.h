/* SPDX-License-Identifier: Apache-2.0 */
/* The watcher thread "hvd-gpu-watch": detects that batches finished and wakes the
 * coordinator; checks for asynchronous errors and XIDs; it alone aborts.
 *
 * With batches in flight it checks every 50 us if a host waits for one of them, else
 * every 500 us. If nothing has finished for long, for example because a peer is late
 * by minutes, it checks after a sixteenth of that time, up to 1 and 5 ms. It calls
 * hooks.look and xids_request_query every 100 ms; otherwise it sleeps. Once the
 * launcher is quiet, or has not become quiet in 200 ms (in a call that may hang) or
 * 500 ms, it calls hooks.abort, once. */
#ifndef RUNTIME_BACKEND_NCCL_WATCH_H
#define RUNTIME_BACKEND_NCCL_WATCH_H

#include <pthread.h>
#include <stdbool.h>

#include "runtime/backend/nccl/event.h"
#include "runtime/backend/nccl/scratch.h"

struct device;
struct gpu_job;

struct gpu_watch {
    struct device *g;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock; /* jobs, n_flights, n_urgent, moved_ns; a leaf */
    struct gpu_job *head[GPU_MAX_STREAMS], **tail[GPU_MAX_STREAMS];
    uint32_t n_flights, n_urgent;
    uint64_t moved_ns;           /* when one last started or finished */
    _Atomic uint32_t n_awaiting; /* waiting hosts: everything is urgent */
    _Atomic uint32_t bell;       /* a futex word */
    _Atomic uint32_t has_ended;  /* likewise: the thread is out */
};

void watch_init(struct gpu_watch *w, struct device *g); /* before the launcher starts */
int watch_start(struct gpu_watch *w, struct err *err);
/* A job that was put on its stream; takes it over, and frees it when its event `done`
 * is. If the job failed on the way, `done` has failed and the device is broken. The
 * launcher. */
void watch_add(struct gpu_watch *w, struct gpu_job *job);
/* Does a stream of ours wait for a stream of the program: for a ready event of the
 * oldest job that is not done? Any thread, our context current. */
bool watch_awaits_user(struct gpu_watch *w);
/* A host starts, or stops, waiting for batches in flight or to come. Any thread. */
void watch_await(struct gpu_watch *w, bool begins);
void watch_ring(struct gpu_watch *w); /* check again now. Any thread */
/* Life is GPU_ENDED. 0, or -ETIMEDOUT: it is stuck in an abort. */
int watch_join(struct gpu_watch *w, uint64_t deadline_ns);
void watch_release(struct gpu_watch *w);

#endif
