/* SPDX-License-Identifier: Apache-2.0 */
/* --host-discovery-script: a command that prints the host list. */
#ifndef RUNTIME_LAUNCH_DISCOVERY_H
#define RUNTIME_LAUNCH_DISCOVERY_H

#include "runtime/contract/hostlist.h"
#include "runtime/launch/capture.h"

#define DISCOVERY_MAX_BYTES (4u << 20) /* that it may print */

/* Reads what command has printed: perhaps no host. */
int discovery_parse(uint32_t slots,
                    const char *command,
                    const struct strbuf *out,
                    struct hostlist *ret,
                    struct err *err);
/* Runs the command with sh, once, and reads its lines "HOST", "HOST:SLOTS" or "HOST
 * slots=N". slots is the default. It may print no host. c needs signals, guard, env and timeout_ms. -EINVAL
 * with err. */
int discovery_run(struct capture *c,
                  const char *command,
                  uint32_t slots,
                  struct hostlist *ret,
                  struct err *err);

#endif
