/* SPDX-License-Identifier: Apache-2.0 */
/* hvd-status JOB[.STEP]: what a running step of srun --hvd does, in the words and the JSON
 * form of `hvd-agent report`. */
#ifndef RUNTIME_LAUNCH_STEP_STATUS_H
#define RUNTIME_LAUNCH_STEP_STATUS_H

#include <stdbool.h>

#define STEP_STATUS_PROGRAM "hvd-status" /* another name of hvd-agent */

/* argv: the words behind the program's name. Returns the exit code: 0; 1 with a message:
 * there is no such step, or not all of its nodes answer; 2: usage. */
int step_status(char *const *argv);

#endif
