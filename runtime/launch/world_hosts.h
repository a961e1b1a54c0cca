/* SPDX-License-Identifier: Apache-2.0 */
/* hvd-agent hosts: prints the hosts of a job whose number of workers may change. */
#ifndef RUNTIME_LAUNCH_WORLD_HOSTS_H
#define RUNTIME_LAUNCH_WORLD_HOSTS_H

#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"
#include "runtime/contract/agent_env.h"
#include "runtime/contract/job_world.h"

/* A line HOST:SLOTS for each worker. -EINVAL: HVD_CHECKIN_ADDR is not the name of worker
 * 0. */
int world_hosts_write(const struct agent_env *a,
                      const struct job_world *w,
                      struct strbuf *out,
                      struct err *err);
int agent_hosts(char *const *argv); /* the exit code */

#endif
