/* SPDX-License-Identifier: Apache-2.0 */
/* The life of the processes that one launcher started. Pure: time comes in, signals go
 * out. */
#ifndef RUNTIME_LAUNCH_CORE_JOB_H
#define RUNTIME_LAUNCH_CORE_JOB_H

#include <stdbool.h>
#include <stdint.h>

enum job_state { JOB_RUNNING, JOB_SIGNALLED, JOB_STOPPING, JOB_KILLED, JOB_ENDED };
enum job_event {
    JOB_SIGNAL,   /* the user or the system told the launcher to stop */
    JOB_STOP,     /* a failure was found: stop all ranks */
    JOB_DEADLINE, /* the time of this state is over */
    JOB_ALL_EXITED,
};

#define JOB_STOP_GRACE_MS 5000 /* SIGTERM -> SIGKILL after a failure */
#define JOB_KILL_PATIENCE_MS                                                           \
    10000 /* SIGKILL -> give up: a process that hangs in the kernel */

struct launch_job {
    enum job_state state;
    uint64_t
        signal_grace_ns; /* forwarded signal -> SIGKILL; UINT64_MAX: no bound of ours */
    uint64_t deadline_ns; /* of this state; UINT64_MAX: none */
    int forwarded_signal; /* the first signal that was forwarded, 0: none */
};

void job_init(struct launch_job *j, uint64_t signal_grace_ns);
/* The state after an event; same state: the event changes nothing. The edge table
 * alone. */
enum job_state job_next(enum job_state s, enum job_event e);
/* Applies an event. Returns the signal that all ranks' process groups must get now, 0:
 * none. sig: the received signal with JOB_SIGNAL, else ignored. */
int job_apply(struct launch_job *j, enum job_event e, int sig, uint64_t now_ns);

#endif
