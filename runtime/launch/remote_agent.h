/* SPDX-License-Identifier: Apache-2.0 */
/* One host's ranks of a job that horovodrun leads from another host. */
#ifndef RUNTIME_LAUNCH_REMOTE_AGENT_H
#define RUNTIME_LAUNCH_REMOTE_AGENT_H

#include "runtime/contract/hostlist.h"
#include "runtime/contract/token.h"
#include "runtime/launch/channel.h"
#include "runtime/launch/signals.h"

struct remote_peer { /* who leads the job */
    struct channel channel;
    struct token root;                                          /* session.h */
    char own[HOST_NAME_MAX_BYTES], theirs[HOST_NAME_MAX_BYTES]; /* both ends' addresses,
                                                                   "": unknown */
};

/* Carries out one job. Takes over what is in up, borrows signals. Returns the process'
 * exit code. */
int remote_agent_run(struct signals *signals, struct remote_peer *up);

#endif
