/* SPDX-License-Identifier: Apache-2.0 */
/* Where the agents of a job meet: a thread in worker 0's agent. The agent of worker 0
 * talks to it over the network like all others, so there is one path. */
#ifndef RUNTIME_LAUNCH_HUB_H
#define RUNTIME_LAUNCH_HUB_H

#include "runtime/contract/agent_env.h"
#include "runtime/contract/token.h"

struct hub;
/* Listens on env->checkin_port. env and token are copied. */
int hub_start(const struct agent_env *env,
              const struct token *token,
              uint64_t peer_timeout_ns,
              struct hub **ret,
              struct err *err);
/* Waits until the hub has said the end to all agents and they have gone, or the
 * deadline; then ends the thread. Accepts NULL. */
void hub_finish(struct hub *h, uint64_t deadline_ns);

#endif
