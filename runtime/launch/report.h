/* SPDX-License-Identifier: Apache-2.0 */
/* hvd-agent report: prints the live report of the job of this pod. */
#ifndef RUNTIME_LAUNCH_REPORT_H
#define RUNTIME_LAUNCH_REPORT_H

/* argv: the words behind "report". Returns the exit code: 0; 1 with a message: the agent
 * cannot be asked; 2: usage. */
int agent_report(char *const *argv);

#endif
