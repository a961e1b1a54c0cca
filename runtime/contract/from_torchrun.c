/* SPDX-License-Identifier: Apache-2.0 */
/* torchrun's set, which Kubernetes' PyTorchJob and hand-written scripts use as well:
 *
 *   RANK WORLD_SIZE MASTER_ADDR MASTER_PORT [LOCAL_RANK LOCAL_WORLD_SIZE]
 *   [GROUP_RANK GROUP_WORLD_SIZE] [TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT]
 *
 * Without the local pair it is one process a host (PyTorchJob). Without the group pair
 * the hosts are taken for equal. MASTER_PORT belongs to torch's own store: our port is
 * another one. A restart by torchrun is the next generation. */
#include <errno.h>
#include <stdio.h>

#include "runtime/contract/foreign.h"

static bool torchrun_is_present(const struct env_reader *r)
{
    return env_look(r, "RANK") && env_look(r, "WORLD_SIZE")
           && env_look(r, "MASTER_ADDR") && env_look(r, "MASTER_PORT");
}

static int torchrun_read_place(const struct env_reader *r, struct place *p)
{
    static const struct place_names names = {"RANK",       "WORLD_SIZE",
                                             "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                             "GROUP_RANK", "GROUP_WORLD_SIZE"};
    const uint32_t max = WORLD_MAX_RANKS;

    *p = (struct place){.local_size = 1};
    int rc = foreign_need(r, "RANK", 0, max - 1, &p->rank);
    if (rc == 0)
        rc = foreign_need(r, "WORLD_SIZE", 1, max, &p->size);
    if (rc == 0)
        rc = env_u32(r, "LOCAL_WORLD_SIZE", 1, max, &p->local_size);
    if (rc == 0)
        rc = env_u32(r, "LOCAL_RANK", 0, max - 1, &p->local_rank);
    if (rc)
        return rc;
    if (env_look(r, "LOCAL_RANK") && !env_look(r, "LOCAL_WORLD_SIZE"))
        return err_set(r->err, -EINVAL,
                       "LOCAL_RANK=%u is set but LOCAL_WORLD_SIZE is not",
                       p->local_rank);
    p->cross_rank = p->rank / p->local_size;
    p->cross_size = (p->size + p->local_size - 1) / p->local_size;
    rc = env_u32(r, "GROUP_RANK", 0, max - 1, &p->cross_rank);
    if (rc == 0)
        rc = env_u32(r, "GROUP_WORLD_SIZE", 1, max, &p->cross_size);
    p->host = p->cross_rank;
    return rc ? rc : place_check_named(p, &names, r->err);
}

static int read_torchrun(const struct env_reader *r, struct contract *c)
{
    const char *addr = env_look(r, "MASTER_ADDR"), *id;
    char job[JOB_ID_MAX];
    uint32_t port = 0;
    int rc = torchrun_read_place(r, &c->place);

    if (rc == 0)
        rc = foreign_need(r, "MASTER_PORT", 1, 65535, &port);
    if (rc == 0)
        rc = env_u32(r, "TORCHELASTIC_RESTART_COUNT", 0, UINT32_MAX, &c->generation);
    if (rc)
        return rc;
    id = env_look(r, "TORCHELASTIC_RUN_ID");
    int k = snprintf(job, sizeof(job), "torchrun/%.80s/%s:%u", id ? id : "none", addr,
                     port);
    if (k < 0 || (size_t)k >= sizeof(job))
        return err_set(r->err, -EINVAL, "MASTER_ADDR=%.80s... is too long", addr);
    (void)snprintf(c->master_addr, sizeof(c->master_addr), "%s", addr); /* as above */
    c->master_port = (uint16_t)port;
    c->hostname[0] = '\0'; /* torchrun does not set it: the caller queries the system */
    return foreign_set_rendezvous(r, c, addr, job, "", port);
}

const struct foreign foreign_torchrun = {LAUNCHER_TORCHRUN,
                                         "RANK, WORLD_SIZE, MASTER_ADDR",
                                         torchrun_is_present, read_torchrun};
