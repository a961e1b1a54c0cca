/* SPDX-License-Identifier: Apache-2.0 */
/* --host-discovery-script: a command whose output is the host list. */
#ifndef RUNTIME_LAUNCH_DISCOVERY_H
#define RUNTIME_LAUNCH_DISCOVERY_H

#include "runtime/contract/hostlist.h"
#include "runtime/launch/capture.h"

/* Runs the command by sh, once, and reads its lines "HOST", "HOST:SLOTS" or "HOST
 * slots=N"; slots: where it tells none. c needs signals, guard, env and timeout_ms.
 * -EINVAL with a sentence. */
int discovery_run(struct capture *c,
                  const char *command,
                  uint32_t slots,
                  struct hostlist *ret,
                  struct err *err);

#endif
