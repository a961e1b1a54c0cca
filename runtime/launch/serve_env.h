/* SPDX-License-Identifier: Apache-2.0 */
/* Defaults that hvd-agent serve and its clients have in common. */
#ifndef RUNTIME_LAUNCH_SERVE_ENV_H
#define RUNTIME_LAUNCH_SERVE_ENV_H

#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/contract/contract.h"

struct serve_env {
    char token_file[CONTRACT_PATH_MAX]; /* HVD_TOKEN_FILE, /etc/ringmaster/token */
    uint16_t port;                      /* HVD_AGENT_PORT, 7172 */
    uint32_t start_timeout_s;           /* HVD_START_TIMEOUT, 600 */
    uint32_t leave_s;                   /* HVD_LEAVE_TIME, 15 */
    char retire_log[CONTRACT_PATH_MAX]; /* HVD_TERMINATION_LOG, "" */
};
/* 0, or -EINVAL with err, which names the variable. */
int serve_env_read(struct serve_env *ret, struct err *err);

#endif
