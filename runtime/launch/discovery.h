/* SPDX-License-Identifier: Apache-2.0 */
/* --host-discovery-script: a command whose output is the host list. */
#ifndef RUNTIME_LAUNCH_DISCOVERY_H
#define RUNTIME_LAUNCH_DISCOVERY_H

#include "runtime/contract/hostlist.h"
#include "runtime/launch/guard.h"
#include "runtime/launch/signals.h"

struct discovery {
    struct signals *signals;
    struct guard *guard; /* kills what the script started when we are killed */
    char *const *env;
    uint64_t timeout_ms;
    uint32_t slots; /* of a host for which it tells none */
    int signal;     /* set when a signal asked us to stop meanwhile */
};

/* Runs the command by sh, once, and reads its lines "HOST", "HOST:SLOTS" or "HOST
 * slots=N". Its standard error is ours. -EINVAL with a sentence when it fails, says
 * nothing that is a host list, takes too long or somebody stops us; then nothing that
 * it started is left. */
int discovery_run(struct discovery *d,
                  const char *command,
                  struct hostlist *ret,
                  struct err *err);

#endif
