/* SPDX-License-Identifier: Apache-2.0 */
/* Slurm's environment of a task, in which a user may set any variable, as the plugin
 * reads it. A contract that it makes can be given to the task, and is read there as the
 * same place; the hostfile has all hosts. */
#include <errno.h>

#include "runtime/base/mem.h"
#include "runtime/contract/hostlist.h"
#include "spank_plugin/layout.h"
#include "tests/fuzz/fuzz_env.h"

static const struct layout_paths paths = {.token_file = "/run/x/token",
                                          .hostfile = "/run/x/hosts",
                                          .iface = "ib0",
                                          .rdv_port = 40001,
                                          .master_port = 20007};

static void hostfile_check(struct fuzz_env *env, const struct contract *c)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};
    CLEANUP(hostlist_release) struct hostlist hosts = {0};
    struct err err = ERR_INIT;

    strbuf_init(&b, 64u << 20);
    MUST(layout_hostfile(fuzz_env_get, env, &b, &err) == 0);
    MUST(hostlist_parse_hostfile(strbuf_str(&b), &hosts, &err) == 0);
    MUST(hostlist_slots(&hosts) == c->place.size && c->place.host < hosts.n);
    MUST(strcmp(hosts.v[c->place.host].name, c->hostname) == 0);
}

FUZZ_TARGET(layout)
{
    static struct fuzz_pairs pairs;
    struct fuzz_env env;
    struct contract c, d;
    struct err err = ERR_INIT;

    fuzz_env_init(&env, data, n);
    int rc = layout_contract(fuzz_env_get, &env, &paths, &c, &err);
    if (rc) {
        MUST((rc == -EINVAL || rc == -E2BIG) && err.code == rc && err.text[0]);
    } else {
        MUST(place_check(&c.place, &err) == 0);
        MUST(strncmp(c.job_id, "slurm.", 6) == 0 && c.master_addr[0]);
        MUST(contract_render(&c, pairs.v, &pairs.n, &err) == 0);
        MUST(contract_parse(fuzz_pairs_get, &pairs, &d, &err) == 0);
        MUST(memcmp(&c.place, &d.place, sizeof(c.place)) == 0);
        MUST(strcmp(c.master_addr, d.master_addr) == 0);
        MUST(strcmp(c.rdv_host, d.rdv_host) == 0);
        hostfile_check(&env, &c);
    }
    free(env.text);
    return 0;
}
