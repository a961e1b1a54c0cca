/* SPDX-License-Identifier: Apache-2.0 */
/* A pod's termination message, by which the operator learns why it ended. */
#ifndef RUNTIME_LAUNCH_TERMINATION_H
#define RUNTIME_LAUNCH_TERMINATION_H

#include "runtime/launch/core/verdict.h"

/* path "": there is none. A file that cannot be written is logged. */
void termination_write(const char *path, const struct report *r);

#endif
