/* SPDX-License-Identifier: Apache-2.0 */
/* Who is which rank in a Slurm step. Called by srun.c (job id) and by node.c and task.c
 * (the rest).
 *
 *   SLURM_PROCID, SLURM_STEP_NUM_TASKS      -> rank, size
 *   SLURM_LOCALID, tasks on SLURM_NODEID    -> local_rank, local_size
 *   SLURM_STEP_TASKS_PER_NODE "2(x2),1"     -> cross_rank, cross_size: the nodes with
 * more than local_rank tasks, counted in the order of the list
 *
 * Ranks are Slurm's own, whatever --distribution made of them (cyclic, plane,
 * arbitrary), so that rank 2 is task 2 in every message of srun; Horovod's host-by-host
 * order is not imposed. Two facts, seen on 22.05: in a heterogeneous step these
 * variables span all components (SPANK's items do not); and with
 * --distribution=arbitrary rank 0 is not always on the first node of the list. */
#include "spank_plugin/layout.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/parse.h"
#include "runtime/contract/hostlist.h"
#include "spank_plugin/ticket.h"

struct step_nodes {
    struct hostlist hosts;
    uint32_t *counts;
    size_t n_counts;
};

static void step_nodes_release(struct step_nodes *s)
{
    hostlist_release(&s->hosts);
    mem_free(s->counts);
}

static int
need(getenv_fn get, void *arg, const char *name, const char **ret, struct err *err)
{
    const char *v = get(arg, name);
    if (!v || !*v)
        return err_set(err, -EINVAL, "%s is not set; is this a task of srun?", name);
    *ret = v;
    return 0;
}

static int need_u32(getenv_fn get,
                    void *arg,
                    const char *name,
                    uint32_t min,
                    uint32_t max,
                    uint32_t *ret,
                    struct err *err)
{
    const char *v = NULL;
    int rc = need(get, arg, name, &v, err);
    return rc ? rc : parse_u32(name, v, min, max, ret, err);
}

static int read_nodes(getenv_fn get, void *arg, struct step_nodes *ret, struct err *err)
{
    const char *list = NULL, *counts = NULL;
    int rc = need(get, arg, "SLURM_STEP_NODELIST", &list, err);
    if (!rc)
        rc = need(get, arg, "SLURM_STEP_TASKS_PER_NODE", &counts, err);
    if (!rc)
        rc = hostlist_parse_slurm(list, &ret->hosts, err);
    if (!rc)
        rc = slurm_counts_parse(counts, HOSTLIST_MAX_HOSTS, &ret->counts,
                                &ret->n_counts, err);
    if (rc)
        return rc;
    if (ret->hosts.n != ret->n_counts)
        return err_set(err, -EINVAL,
                       "SLURM_STEP_NODELIST=%s has %zu nodes, but "
                       "SLURM_STEP_TASKS_PER_NODE=%s counts %zu",
                       list, ret->hosts.n, counts, ret->n_counts);
    for (size_t i = 0; i < ret->n_counts; i++)
        ret->hosts.v[i].slots = ret->counts[i];
    return 0;
}

int layout_hostfile(getenv_fn get, void *arg, struct strbuf *out, struct err *err)
{
    CLEANUP(step_nodes_release) struct step_nodes nodes = {0};
    int rc = read_nodes(get, arg, &nodes, err);
    if (rc)
        return rc;
    hostlist_render_hostfile(&nodes.hosts, out);
    rc = strbuf_status(out);
    return rc ? err_set(err, rc, "the hostfile of %zu nodes does not fit",
                        nodes.hosts.n)
              : 0;
}

int layout_job_id(
    getenv_fn get, void *arg, char *ret, size_t size_bytes, struct err *err)
{
    uint32_t job, step;
    int rc = need_u32(get, arg, "SLURM_JOB_ID", 1, UINT32_MAX, &job, err);
    if (!rc)
        rc = need_u32(get, arg, "SLURM_STEP_ID", 0, UINT32_MAX, &step, err);
    if (rc)
        return rc;
    (void)snprintf(ret, size_bytes, "slurm.%u.%u", job, step);
    return 0;
}

static int read_place(getenv_fn get,
                      void *arg,
                      const struct step_nodes *nodes,
                      struct place *ret,
                      struct err *err)
{
    struct place p = {0};
    int rc =
        need_u32(get, arg, "SLURM_STEP_NUM_TASKS", 1, WORLD_MAX_RANKS, &p.size, err);
    if (!rc)
        rc = need_u32(get, arg, "SLURM_PROCID", 0, p.size - 1, &p.rank, err);
    if (!rc)
        rc = need_u32(get, arg, "SLURM_NODEID", 0, (uint32_t)nodes->hosts.n - 1,
                      &p.host, err);
    if (rc)
        return rc;
    p.local_size = nodes->counts[p.host];
    if (p.local_size == 0)
        return err_set(err, -EINVAL,
                       "SLURM_STEP_TASKS_PER_NODE counts no task on %s "
                       "(SLURM_NODEID=%u)",
                       nodes->hosts.v[p.host].name, p.host);
    rc = need_u32(get, arg, "SLURM_LOCALID", 0, p.local_size - 1, &p.local_rank, err);
    if (rc)
        return rc;
    uint64_t sum = 0;
    for (size_t i = 0; i < nodes->n_counts; i++) {
        sum += nodes->counts[i];
        if (nodes->counts[i] <= p.local_rank)
            continue;
        p.cross_rank += i < p.host;
        p.cross_size++;
    }
    if (sum != p.size)
        return err_set(err, -EINVAL,
                       "SLURM_STEP_NUM_TASKS=%u, but SLURM_STEP_TASKS_PER_NODE=%s sums "
                       "up to %llu",
                       p.size, get(arg, "SLURM_STEP_TASKS_PER_NODE"),
                       (unsigned long long)sum);
    *ret = p;
    return 0;
}

/* The node of rank 0: the first of the list, unless the user dealt the tasks by hand.
 */
static int read_master(getenv_fn get,
                       void *arg,
                       const struct step_nodes *nodes,
                       char *ret,
                       struct err *err)
{
    CLEANUP(hostlist_release) struct hostlist dealt;
    hostlist_init(&dealt);
    const char *how = get(arg, "SLURM_DISTRIBUTION");
    const char *list = get(arg, FIRST_HOST_ENV);
    const char *name = nodes->hosts.v[0].name;
    if (how && strcmp(how, "arbitrary") == 0 && list && *list) {
        int rc = hostlist_parse_slurm(list, &dealt, err);
        if (rc)
            return err_prefix(err, FIRST_HOST_ENV);
        name = dealt.v[0].name;
    }
    (void)snprintf(ret, HOST_NAME_MAX_BYTES, "%s", name);
    return 0;
}

int layout_contract(getenv_fn get,
                    void *arg,
                    const struct layout_paths *paths,
                    struct contract *ret,
                    struct err *err)
{
    CLEANUP(step_nodes_release) struct step_nodes nodes = {0};
    struct contract c;
    const char *srun_addr = NULL;
    contract_init(&c);
    int rc = read_nodes(get, arg, &nodes, err);
    if (!rc)
        rc = read_place(get, arg, &nodes, &c.place, err);
    if (!rc)
        rc = layout_job_id(get, arg, c.job_id, sizeof(c.job_id), err);
    if (!rc)
        rc = need(get, arg, "SLURM_LAUNCH_NODE_IPADDR", &srun_addr, err);
    if (!rc)
        rc = read_master(get, arg, &nodes, c.master_addr, err);
    if (rc)
        return rc;
    c.launcher = LAUNCHER_RINGMASTER;
    (void)snprintf(c.hostname, sizeof(c.hostname), "%s",
                   nodes.hosts.v[c.place.host].name);
    (void)snprintf(c.rdv_host, sizeof(c.rdv_host), "%s", srun_addr);
    c.rdv_port = paths->rdv_port;
    c.token_source = TOKEN_FILE;
    (void)snprintf(c.token_file, sizeof(c.token_file), "%s", paths->token_file);
    (void)snprintf(c.hostfile, sizeof(c.hostfile), "%s", paths->hostfile);
    (void)snprintf(c.iface, sizeof(c.iface), "%s", paths->iface);
    c.master_port = paths->master_port;
    *ret = c;
    return 0;
}
