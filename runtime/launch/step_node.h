/* SPDX-License-Identifier: Apache-2.0 */
/* hvd-agent step JOB.STEP: what the ranks of a Slurm step do on this node, as lines
 * (core/step_line.h) on standard output. hvd-status starts it, as an overlapping step. */
#ifndef RUNTIME_LAUNCH_STEP_NODE_H
#define RUNTIME_LAUNCH_STEP_NODE_H

/* argv: the words behind "step". Prints until standard input ends, or nothing has come
 * from there for a minute. Returns the exit code: 0; 1: the output is gone; 2: usage. */
int agent_step(char *const *argv);

#endif
