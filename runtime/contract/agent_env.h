/* SPDX-License-Identifier: Apache-2.0 */
/* The variables that the operator (or a test, or a plain host) sets for the agent of a
 * worker pod: where the agents meet, and the number of workers and slots. Pure.
 *
 *   HVD_JOB_ID=ns/name/uid
 *   HVD_GENERATION=0
 *   HVD_WORKER_INDEX=1
 *   HVD_NUM_WORKERS=2
 *   HVD_SLOTS_PER_WORKER=1
 *   HVD_NP=2                              optional: fewer ranks than slots
 *   HVD_CHECKIN_ADDR=demo-worker-0.demo.ns.svc
 *   HVD_CHECKIN_PORT=2222
 *   HVD_TOKEN_FILE=/etc/ringmaster/token
 *   HVD_START_TIMEOUT=600
 *   HVD_DIR=/opt/ringmaster
 *   HVD_TERMINATION_LOG=/dev/termination-log
 *   HVD_WORLD_FILE=/etc/ringmaster-world/world   a job that can be scaled:
 *                                                job_world.h */
#ifndef RUNTIME_CONTRACT_AGENT_ENV_H
#define RUNTIME_CONTRACT_AGENT_ENV_H

#include "runtime/contract/contract.h"

#define AGENT_DEFAULT_PORT            7171
#define AGENT_SERVE_PORT              7172 /* of hvd-agent serve */
#define AGENT_DEFAULT_START_TIMEOUT_S 600
#define AGENT_DEFAULT_DIR             "/opt/ringmaster"
#define AGENT_TOKEN_PATH              "/etc/ringmaster/token"
#define AGENT_WORLD_PATH              "/etc/ringmaster-world/world"

struct agent_env {
    char job_id[JOB_ID_MAX];
    uint32_t generation, worker_index, num_workers, slots, np; /* np 0: all slots */
    char checkin_addr[HOST_NAME_MAX_BYTES];
    uint16_t checkin_port;
    char token_file[CONTRACT_PATH_MAX];
    uint32_t start_timeout_s;
    char dir[CONTRACT_PATH_MAX]; /* where `hvd-agent install` put the runtime */
    char termination_log[CONTRACT_PATH_MAX]; /* "" : none */
    char world_file[CONTRACT_PATH_MAX];      /* "" : the world never changes */
};
int agent_env_render(const struct agent_env *a,
                     struct env_pair *ret,
                     size_t *ret_n,
                     struct err *err);
int agent_env_parse(getenv_fn get, void *arg, struct agent_env *ret, struct err *err);

#endif
