/* SPDX-License-Identifier: Apache-2.0 */
/* A pod's termination message, from which the operator reads why it failed. */
#ifndef RUNTIME_LAUNCH_TERMINATION_H
#define RUNTIME_LAUNCH_TERMINATION_H

#include "runtime/launch/core/verdict.h"

/* The file for a launcher's message: HVD_TERMINATION_LOG, which hvd-agent await sets;
 * in an MPIJob's launcher Kubernetes' default path, if it exists; otherwise "". */
const char *termination_path(void);

/* Writes the message. path "": does nothing. Logs if the file cannot be written. */
void termination_write(const char *path, const struct report *r);
/* Empties the file: a script may run the launcher again in the same pod. */
void termination_clear(const char *path);

#endif
