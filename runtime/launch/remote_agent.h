/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of one host in a job that horovodrun leads. */
#ifndef RUNTIME_LAUNCH_REMOTE_AGENT_H
#define RUNTIME_LAUNCH_REMOTE_AGENT_H

#include "runtime/contract/hostlist.h"
#include "runtime/contract/token.h"
#include "runtime/launch/channel.h"
#include "runtime/launch/signals.h"

struct remote_peer { /* the leader of the job */
    struct channel channel;
    struct token root; /* see session.h */
    uint32_t leave_s; /* the time that processes of an elastic job have after SIGTERM */
    /* Where to write why horovodrun retires this host; "": it is not to be retired. */
    const char *retire_log;
    /* addresses of both ends; "": unknown */
    char own[HOST_NAME_MAX_BYTES], theirs[HOST_NAME_MAX_BYTES];
};

/* Runs one job. Takes ownership of the contents of up; borrows signals. Returns the
 * exit code. */
int remote_agent_run(struct signals *signals, struct remote_peer *up);

#endif
