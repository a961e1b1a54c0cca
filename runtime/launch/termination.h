/* SPDX-License-Identifier: Apache-2.0 */
/* A pod's termination message, by which the operator learns why it ended. */
#ifndef RUNTIME_LAUNCH_TERMINATION_H
#define RUNTIME_LAUNCH_TERMINATION_H

#include "runtime/launch/core/verdict.h"

/* Where a launcher writes it: as hvd-agent await says by HVD_TERMINATION_LOG; in an
 * MPIJob's launcher Kubernetes' own place, if it is there; else "". */
const char *termination_path(void);

/* path "": there is none. A file that cannot be written is logged. */
void termination_write(const char *path, const struct report *r);
/* Forgets what an earlier run in the same pod has left: a script may try again. */
void termination_clear(const char *path);

#endif
