/* SPDX-License-Identifier: Apache-2.0 */
/* --host-discovery-script: a command that prints the host list. */
#ifndef RUNTIME_LAUNCH_DISCOVERY_H
#define RUNTIME_LAUNCH_DISCOVERY_H

#include "runtime/contract/hostlist.h"
#include "runtime/launch/capture.h"

/* Runs the command with sh, once, and reads its lines "HOST", "HOST:SLOTS" or "HOST
 * slots=N". slots is the default. c needs signals, guard, env and timeout_ms. -EINVAL
 * with err. */
int discovery_run(struct capture *c,
                  const char *command,
                  uint32_t slots,
                  struct hostlist *ret,
                  struct err *err);

#endif
