/* SPDX-License-Identifier: Apache-2.0 */
/* hvd-agent await: starts a launcher when all of its hosts can be reached. */
#ifndef RUNTIME_LAUNCH_AWAIT_H
#define RUNTIME_LAUNCH_AWAIT_H

/* argv[0] is the first option. Executes the command, or returns the exit code. */
int agent_await(char *const *argv);

#endif
