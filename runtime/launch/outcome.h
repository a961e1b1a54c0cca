/* SPDX-License-Identifier: Apache-2.0 */
/* What horovodrun prints at the end of a job. */
#ifndef RUNTIME_LAUNCH_OUTCOME_H
#define RUNTIME_LAUNCH_OUTCOME_H

#include "runtime/launch/core/verdict.h"

/* Prints the first failure with the last lines of its rank (NULL: none), or else the stop
 * signal that was forwarded (0: none). In a launcher's pod the failure is also reported
 * to the operator. Returns the exit code. */
int outcome_print(const char *program, const struct report *first, int sig);

#endif
