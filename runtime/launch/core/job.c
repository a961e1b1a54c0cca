/* SPDX-License-Identifier: Apache-2.0 */
/* State machine of the processes of one launcher:
 *
 *              SIGNAL (forwarded)               DEADLINE / second SIGNAL (SIGKILL)
 *   RUNNING ------------------------> SIGNALLED -----------------------------> KILLED
 *      |  STOP (SIGTERM)                  | STOP (SIGTERM)                       ^
 *      |                                  v                                      |
 *      '----------------------------> STOPPING -- DEADLINE / SIGNAL (SIGKILL) ---'
 *
 *   ALL_EXITED leads from every state to ENDED. KILLED also ends at its deadline.
 *
 * A forwarded signal comes from the user: ranks may save a checkpoint and exit by
 * themselves. STOP comes from the launcher: a rank has failed, and the other ranks get
 * SIGTERM and 5 seconds. Called by local_ranks.c. */
#include "runtime/launch/core/job.h"

#include <signal.h>
#include <string.h>

#define MS 1000000ull

void job_init(struct launch_job *j, uint64_t signal_grace_ns)
{
    memset(j, 0, sizeof(*j));
    j->state = JOB_RUNNING;
    j->signal_grace_ns = signal_grace_ns;
    j->deadline_ns = UINT64_MAX;
}

enum job_state job_next(enum job_state s, enum job_event e)
{
    static const enum job_state edge[JOB_ENDED + 1][JOB_ALL_EXITED + 1] = {
        /*                 SIGNAL      STOP          DEADLINE      ALL_EXITED */
        [JOB_RUNNING] = {JOB_SIGNALLED, JOB_STOPPING, JOB_RUNNING, JOB_ENDED},
        [JOB_SIGNALLED] = {JOB_KILLED, JOB_STOPPING, JOB_KILLED, JOB_ENDED},
        [JOB_STOPPING] = {JOB_KILLED, JOB_STOPPING, JOB_KILLED, JOB_ENDED},
        [JOB_KILLED] = {JOB_KILLED, JOB_KILLED, JOB_ENDED, JOB_ENDED},
        [JOB_ENDED] = {JOB_ENDED, JOB_ENDED, JOB_ENDED, JOB_ENDED},
    };
    return edge[s][e];
}

int job_apply(struct launch_job *j, enum job_event e, int sig, uint64_t now_ns)
{
    enum job_state next = job_next(j->state, e);
    if (next == j->state)
        return 0;
    j->state = next;
    switch (next) {
    case JOB_SIGNALLED:
        j->forwarded_signal = sig;
        j->deadline_ns =
            j->signal_grace_ns == UINT64_MAX ? UINT64_MAX : now_ns + j->signal_grace_ns;
        return sig;
    case JOB_STOPPING:
        j->deadline_ns = now_ns + JOB_STOP_GRACE_MS * MS;
        return SIGTERM;
    case JOB_KILLED:
        j->deadline_ns = now_ns + JOB_KILL_PATIENCE_MS * MS;
        return SIGKILL;
    case JOB_RUNNING:
    case JOB_ENDED:
        j->deadline_ns = UINT64_MAX;
        return 0;
    }
    return 0;
}
