/* SPDX-License-Identifier: Apache-2.0 */
/* The environment of a worker's agent, both ways. */
#include <errno.h>

#include "runtime/contract/agent_env.h"
#include "tests/fuzz/fuzz_env.h"

FUZZ_TARGET(agent_env)
{
    static struct fuzz_pairs pairs;
    struct fuzz_env env;
    struct agent_env a, b;
    struct err err = ERR_INIT;

    fuzz_env_init(&env, data, n);
    int rc = agent_env_parse(fuzz_env_get, &env, &a, &err);
    free(env.text);
    if (rc) {
        MUST(rc == -EINVAL && err.text[0]);
        return 0;
    }
    MUST(a.worker_index < a.num_workers && a.slots > 0);
    MUST(agent_env_render(&a, pairs.v, &pairs.n, &err) == 0);
    MUST(agent_env_parse(fuzz_pairs_get, &pairs, &b, &err) == 0);
    MUST(a.generation == b.generation && a.worker_index == b.worker_index);
    MUST(a.num_workers == b.num_workers && a.slots == b.slots && a.np == b.np);
    MUST(a.checkin_port == b.checkin_port && a.start_timeout_s == b.start_timeout_s);
    MUST(strcmp(a.job_id, b.job_id) == 0 && strcmp(a.dir, b.dir) == 0);
    MUST(strcmp(a.checkin_addr, b.checkin_addr) == 0);
    MUST(strcmp(a.token_file, b.token_file) == 0);
    MUST(strcmp(a.termination_log, b.termination_log) == 0);
    return 0;
}
