/* SPDX-License-Identifier: Apache-2.0 */
/* The stop sequence of the processes that one launcher has started. Pure: takes events
 * and the time, returns signals. */
#ifndef RUNTIME_LAUNCH_CORE_JOB_H
#define RUNTIME_LAUNCH_CORE_JOB_H

#include <stdbool.h>
#include <stdint.h>

enum job_state { JOB_RUNNING, JOB_SIGNALLED, JOB_STOPPING, JOB_KILLED, JOB_ENDED };
enum job_event {
    JOB_SIGNAL,   /* the launcher received a stop signal */
    JOB_STOP,     /* a rank has failed: stop all ranks */
    JOB_DEADLINE, /* the deadline of the state has passed */
    JOB_ALL_EXITED,
};

#define JOB_STOP_GRACE_MS 5000 /* SIGTERM -> SIGKILL after a failure */
#define JOB_KILL_PATIENCE_MS                                                           \
    10000 /* SIGKILL -> give up on a process that hangs in the kernel */

struct launch_job {
    enum job_state state;
    uint64_t signal_grace_ns; /* forwarded signal -> SIGKILL; UINT64_MAX: no limit */
    uint64_t deadline_ns;     /* of the current state; UINT64_MAX: none */
    int forwarded_signal;     /* the first signal that was forwarded; 0: none */
};

void job_init(struct launch_job *j, uint64_t signal_grace_ns);
/* The edge table: the state after an event; the same state if the event has no
 * effect. */
enum job_state job_next(enum job_state s, enum job_event e);
/* Applies an event. Returns the signal to send to all process groups now; 0: none. sig:
 * the received signal with JOB_SIGNAL, otherwise ignored. */
int job_apply(struct launch_job *j, enum job_event e, int sig, uint64_t now_ns);

#endif
