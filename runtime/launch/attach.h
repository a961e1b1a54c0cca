/* SPDX-License-Identifier: Apache-2.0 */
/* Agents that horovodrun starts itself. */
#ifndef RUNTIME_LAUNCH_ATTACH_H
#define RUNTIME_LAUNCH_ATTACH_H

#include <sys/types.h>

#include "runtime/launch/guard.h"
#include "runtime/launch/signals.h"

/* hvd-agent attach: started by ssh, connected to horovodrun by standard input and
 * output. Returns the exit code. */
int attach_stdio(struct signals *signals);
/* Forks the agent of horovodrun's own host. Call before any thread or link exists.
 * *ret_fd is our end, non-blocking. */
int attach_local(struct signals *signals,
                 struct guard *guard,
                 int *ret_fd,
                 pid_t *ret_pid,
                 struct err *err);

#endif
