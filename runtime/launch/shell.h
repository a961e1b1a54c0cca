/* SPDX-License-Identifier: Apache-2.0 */
/* One command of a remote shell: the end in hvd-agent serve. */
#ifndef RUNTIME_LAUNCH_SHELL_H
#define RUNTIME_LAUNCH_SHELL_H

#include "runtime/launch/channel.h"
#include "runtime/launch/signals.h"

/* Runs the command that the channel's other end names, to its end; takes the channel
 * over. In a process of its own, before any thread is made; its standard input is
 * /dev/null. Returns the process's exit code. */
int shell_serve(struct signals *signals, struct channel *up);

#endif
