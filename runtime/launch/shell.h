/* SPDX-License-Identifier: Apache-2.0 */
/* One command of hvd-agent rsh: the end in hvd-agent serve. */
#ifndef RUNTIME_LAUNCH_SHELL_H
#define RUNTIME_LAUNCH_SHELL_H

#include "runtime/launch/channel.h"
#include "runtime/launch/signals.h"

/* Runs the command that the client sends, to its end. Takes ownership of the channel.
 * Call in a process of its own whose standard input is /dev/null, before any thread
 * exists. Returns the exit code of the process. */
int shell_serve(struct signals *signals, struct channel *up);

#endif
