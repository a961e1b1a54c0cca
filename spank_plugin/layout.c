/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of a Slurm step: contract/slurm_step.c reads them from the task's
 * variables, this file turns them into a contract. Called by srun.c (job id), node.c
 * (hostfile) and task.c (the contract).
 *
 * Ranks are Slurm's own for every --distribution (cyclic, plane, arbitrary), so that
 * rank 2 is task 2 in every message of srun; Horovod's host-by-host order is not
 * imposed. Two observations on 22.05: in a heterogeneous step these variables span all
 * components (SPANK's items do not); and with --distribution=arbitrary rank 0 is not
 * always on the first node of the list. */
#include "spank_plugin/layout.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/contract/slurm_step.h"
#include "spank_plugin/ticket.h"

int layout_hostfile(getenv_fn get, void *arg, struct strbuf *out, struct err *err)
{
    const struct env_reader r = {.get = get, .arg = arg, .err = err};
    CLEANUP(hostlist_release) struct hostlist hosts;
    hostlist_init(&hosts);
    int rc = slurm_step_hosts(&r, &hosts);
    if (rc)
        return rc;
    hostlist_render_hostfile(&hosts, out);
    rc = strbuf_status(out);
    return rc ? err_set(err, rc, "the hostfile of %zu nodes does not fit", hosts.n) : 0;
}

int layout_tf_config(getenv_fn get,
                     void *arg,
                     const struct tf_roles *roles,
                     uint16_t ports,
                     struct strbuf *out,
                     struct err *err)
{
    const struct env_reader r = {.get = get, .arg = arg, .err = err};
    CLEANUP(slurm_step_release) struct slurm_step step = {.hosts = {0}};
    int rc = slurm_step_read(&r, &step);
    if (rc)
        return rc;
    const struct tf_world world = {
        .roles = *roles, .hosts = &step.hosts, .np = step.place.size, .ports = ports};
    return tf_world_config(&world, &step.place, out, err);
}

int layout_job_id(
    getenv_fn get, void *arg, char *ret, size_t size_bytes, struct err *err)
{
    const struct env_reader r = {.get = get, .arg = arg, .err = err};
    const char *why = "although srun sets it for every step";
    uint32_t job = 0, step = 0;
    int rc = env_need_u32(&r, "SLURM_JOB_ID", 1, UINT32_MAX, &job, why);
    if (!rc)
        rc = env_need_u32(&r, "SLURM_STEP_ID", 0, UINT32_MAX, &step, why);
    if (rc)
        return rc;
    (void)snprintf(ret, size_bytes, "slurm.%u.%u", job, step);
    return 0;
}

/* The node of rank 0: the first of the list, or of SLURM_HOSTFILE with
 * --distribution=arbitrary. */
static int
read_master(const struct env_reader *r, const struct slurm_step *step, char *ret)
{
    CLEANUP(hostlist_release) struct hostlist listed;
    hostlist_init(&listed);
    const char *how = env_look(r, "SLURM_DISTRIBUTION");
    const char *list = env_look(r, FIRST_HOST_ENV);
    const char *name = step->hosts.v[0].name;
    if (how && strncmp(how, "arbitrary", 9) == 0 && list) {
        int rc = hostlist_parse_slurm(list, &listed, r->err);
        if (rc)
            return err_prefix(r->err, FIRST_HOST_ENV);
        name = listed.v[0].name;
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
    const struct env_reader r = {.get = get, .arg = arg, .err = err};
    CLEANUP(slurm_step_release) struct slurm_step step = {.hosts = {0}};
    struct contract c;
    contract_init(&c);
    int rc = slurm_step_read(&r, &step);
    if (!rc)
        rc = layout_job_id(get, arg, c.job_id, sizeof(c.job_id), err);
    if (!rc)
        rc = read_master(&r, &step, c.master_addr);
    if (rc)
        return rc;
    const char *srun_addr = env_look(&r, "SLURM_LAUNCH_NODE_IPADDR");
    if (!srun_addr)
        return err_set(err, -EINVAL,
                       "SLURM_LAUNCH_NODE_IPADDR is unset: where srun runs is unknown");
    c.launcher = LAUNCHER_RINGMASTER;
    c.place = step.place;
    (void)snprintf(c.hostname, sizeof(c.hostname), "%s",
                   step.hosts.v[step.place.host].name);
    (void)snprintf(c.rdv_host, sizeof(c.rdv_host), "%s", srun_addr);
    c.rdv_port = paths->rdv_port;
    c.generation = paths->generation;
    c.token_source = TOKEN_FILE;
    (void)snprintf(c.token_file, sizeof(c.token_file), "%s", paths->token_file);
    (void)snprintf(c.hostfile, sizeof(c.hostfile), "%s", paths->hostfile);
    (void)snprintf(c.iface, sizeof(c.iface), "%s", paths->iface);
    c.master_port = paths->master_port;
    *ret = c;
    return 0;
}
