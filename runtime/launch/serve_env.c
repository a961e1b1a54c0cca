/* SPDX-License-Identifier: Apache-2.0 */
/* In the pods of an MPIJob none of these variables is set: the operator mounts the
 * token at the default path, and mpirun, which starts hvd-rsh, can only be configured
 * with the path of a program. Called by serve.c, await.c and rsh.c. */
#include "runtime/launch/serve_env.h"

#include <string.h>

#include "runtime/contract/agent_env.h"
#include "runtime/contract/env_reader.h"
#include "runtime/launch/remote.h"
#include "runtime/launch/environment.h"

#define DEFAULT_LEAVE_S 15 /* half of the time that Kubernetes gives */
#define MAX_LEAVE_S     86400

int serve_env_read(struct serve_env *ret, struct err *err)
{
    const struct env_reader r = {environment_own, NULL, err};
    struct serve_env e;
    memset(&e, 0, sizeof(e));
    e.port = REMOTE_DEFAULT_PORT;
    e.leave_s = DEFAULT_LEAVE_S;
    e.start_timeout_s = AGENT_DEFAULT_START_TIMEOUT_S;
    int rc = env_text(&r, "HVD_TOKEN_FILE", AGENT_TOKEN_PATH, e.token_file,
                      sizeof(e.token_file));
    if (rc == 0)
        rc = env_port(&r, "HVD_AGENT_PORT", &e.port);
    if (rc == 0)
        rc = env_u32(&r, "HVD_START_TIMEOUT", 1, UINT32_MAX, &e.start_timeout_s);
    if (rc == 0)
        rc = env_u32(&r, "HVD_LEAVE_TIME", 0, MAX_LEAVE_S, &e.leave_s);
    if (rc == 0)
        rc =
            env_text(&r, "HVD_TERMINATION_LOG", "", e.retire_log, sizeof(e.retire_log));
    if (rc == 0)
        *ret = e;
    return rc;
}
