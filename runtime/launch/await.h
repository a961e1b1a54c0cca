/* SPDX-License-Identifier: Apache-2.0 */
/* hvd-agent await: the launcher of a job begins when all of its hosts serve. */
#ifndef RUNTIME_LAUNCH_AWAIT_H
#define RUNTIME_LAUNCH_AWAIT_H

/* argv begins with the first option. Becomes the command, or returns the exit code. */
int agent_await(char *const *argv);

#endif
