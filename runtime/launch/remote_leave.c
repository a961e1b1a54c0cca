/* SPDX-License-Identifier: Apache-2.0 */
/* A host of an elastic job that goes. It is announced: its pod is deleted, its node
 * drained.
 *
 *   SIGTERM -> LEAVING -> horovodrun drains its slots: the world ends at the next commit,
 *                         and is formed again without this host
 *                      <- KILL of each process
 *   no process runs, or the time is over -> the processes are stopped, the agent exits
 *
 * A second signal, or the death of hvd-agent serve, ends the processes at once.
 *
 * Or no process works on it (RETIRE): in a pod the agent and hvd-agent serve exit, and the
 * operator recreates the pod, the second time on another node. Elsewhere nothing
 * would take the host's place. Called by remote_agent.c. */
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/launch/core/message.h"
#include "runtime/launch/remote_agent_state.h"
#include "runtime/launch/termination.h"

bool remote_leave_begin(void *arg, int sig)
{
    struct remote_agent *a = arg;
    if (!a->crew || !a->up.is_open || a->is_ending || a->leave_signal
        || a->leave_time_ns == 0 || getppid() != a->parent
        || local_ranks_running(a->local) == 0)
        return false;
    a->leave_signal = sig;
    a->leave_due_ns = clock_now_ns() + a->leave_time_ns;
    uplink_send(&a->up, ERRAND_LEAVING, NULL);
    return true;
}

void remote_leave_serve(struct remote_agent *a)
{
    if (!a->leave_signal || a->is_ending)
        return;
    if (local_ranks_running(a->local) == 0) {
        remote_agent_begin_end(a);
    } else if (clock_now_ns() >= a->leave_due_ns) {
        a->leave_due_ns = UINT64_MAX;
        local_ranks_signal(a->local, a->leave_signal);
    }
}

uint64_t remote_leave_next_ns(const struct remote_agent *a)
{
    return a->leave_signal ? a->leave_due_ns : UINT64_MAX;
}

int remote_leave_retire(struct remote_agent *a,
                        const struct bytes_reader *r,
                        struct err *err)
{
    AUTOFREE struct report *report = NULL;
    int rc = report_read_new(r->p, r->left, &report, err);

    if (rc < 0 || a->is_ending || !*a->retire_log)
        return rc;
    a->is_retired = true;
    termination_write(a->retire_log, report);
    uplink_send(&a->up, ERRAND_LEAVING, NULL);
    remote_agent_begin_end(a);
    return 0;
}
