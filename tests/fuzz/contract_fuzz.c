/* SPDX-License-Identifier: Apache-2.0 */
/* The environment of a training process: discovery by any launcher's set, and our own
 * set both ways: what contract_parse accepts, contract_render writes so that it is read
 * as the same. */
#include <errno.h>

#include "runtime/contract/discover.h"
#include "tests/fuzz/fuzz_env.h"

static void contract_same(const struct contract *a, const struct contract *b)
{
    MUST(memcmp(&a->place, &b->place, sizeof(a->place)) == 0);
    MUST(strcmp(a->hostname, b->hostname) == 0);
    MUST(strcmp(a->rdv_host, b->rdv_host) == 0 && a->rdv_port == b->rdv_port);
    MUST(a->rank0_serves == b->rank0_serves && a->generation == b->generation);
    MUST(strcmp(a->job_id, b->job_id) == 0 && a->token_source == b->token_source);
    MUST(strcmp(a->token_file, b->token_file) == 0 && a->token_fd == b->token_fd);
    MUST(strcmp(a->hostfile, b->hostfile) == 0 && strcmp(a->iface, b->iface) == 0);
    MUST(strcmp(a->master_addr, b->master_addr) == 0);
    MUST(a->master_port == b->master_port);
}

FUZZ_TARGET(contract)
{
    static struct fuzz_pairs pairs;
    struct fuzz_env env;
    struct contract c, d;
    struct err err = ERR_INIT;
    char why[256];

    fuzz_env_init(&env, data, n);
    int rc = contract_parse(fuzz_env_get, &env, &c, &err);
    if (rc) {
        MUST((rc == -EINVAL || rc == -ENOENT) && err.code == rc && err.text[0]);
    } else {
        MUST(contract_render(&c, pairs.v, &pairs.n, &err) == 0);
        MUST(pairs.n <= CONTRACT_MAX_ENV);
        MUST(contract_parse(fuzz_pairs_get, &pairs, &d, &err) == 0);
        contract_same(&c, &d);
    }
    rc = contract_discover(fuzz_env_get, &env, &c, why, sizeof(why), &err);
    if (rc) {
        MUST(rc == -EINVAL && err.text[0]);
    } else {
        MUST(place_check(&c.place, &err) == 0 && why[0]);
        MUST(c.place.size == 1 || (c.rdv_host[0] && c.rdv_port && c.job_id[0]));
    }
    free(env.text);
    return 0;
}
