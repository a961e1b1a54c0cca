/* SPDX-License-Identifier: Apache-2.0 */
/* The hub of a job: a thread in worker 0's agent to which all agents connect. Worker
 * 0's own agent connects over TCP like every other agent, so there is one code path. */
#ifndef RUNTIME_LAUNCH_HUB_H
#define RUNTIME_LAUNCH_HUB_H

#include "runtime/contract/agent_env.h"
#include "runtime/contract/token.h"

struct hub;
/* Listens on env->checkin_port. Copies env and token. */
int hub_start(const struct agent_env *env,
              const struct token *token,
              uint64_t peer_timeout_ns,
              struct hub **ret,
              struct err *err);
/* Waits until all agents have received the end of the job and have closed, or until the
 * deadline; then ends the thread. Accepts NULL. */
void hub_finish(struct hub *h, uint64_t deadline_ns);

#endif
