/* SPDX-License-Identifier: Apache-2.0 */
/* The variables that the operator sets for a worker's agent. Names are env_table.h's.
 * Reading is strict: a wrong worker index would start a second rank 0. */
#include "runtime/contract/agent_env.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/contract/env_reader.h"

/* One check for both directions. */
static int agent_env_check(const struct agent_env *a, struct err *err)
{
    if (a->num_workers == 0 || a->num_workers > HOSTLIST_MAX_HOSTS)
        return err_set(err, -EINVAL, "HVD_NUM_WORKERS=%u is not from 1 to %d",
                       a->num_workers, HOSTLIST_MAX_HOSTS);
    if (a->worker_index >= a->num_workers)
        return err_set(err, -EINVAL,
                       "HVD_WORKER_INDEX=%u is not below HVD_NUM_WORKERS=%u",
                       a->worker_index, a->num_workers);
    if (a->slots == 0 || a->slots > HOST_MAX_SLOTS)
        return err_set(err, -EINVAL, "HVD_SLOTS_PER_WORKER=%u is not from 1 to %d",
                       a->slots, HOST_MAX_SLOTS);
    uint64_t all = (uint64_t)a->slots * a->num_workers;
    if (a->np > all)
        return err_set(err, -EINVAL, "HVD_NP=%u exceeds the %llu slots of %u workers",
                       a->np, (unsigned long long)all, a->num_workers);
    if ((a->np ? a->np : all) > WORLD_MAX_RANKS)
        return err_set(
            err, -EINVAL,
            "HVD_NUM_WORKERS=%u with HVD_SLOTS_PER_WORKER=%u exceeds %d ranks",
            a->num_workers, a->slots, WORLD_MAX_RANKS);
    for (const char *p = a->job_id; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return err_set(err, -EINVAL, "HVD_JOB_ID has a control character");
    if (!a->job_id[0])
        return err_set(err, -EINVAL, "HVD_JOB_ID is unset");
    if (!a->checkin_addr[0])
        return err_set(err, -EINVAL, "HVD_CHECKIN_ADDR is unset");
    if (a->checkin_port == 0)
        return err_set(err, -EINVAL, "HVD_CHECKIN_PORT=0 is not from 1 to 65535");
    if (!a->token_file[0])
        return err_set(err, -EINVAL, "HVD_TOKEN_FILE is unset");
    if (!a->dir[0])
        return err_set(err, -EINVAL, "HVD_DIR is unset");
    return 0;
}

static void put_text(struct env_pair *v, size_t *n, const char *name, const char *value)
{
    (void)snprintf(v[*n].name, sizeof(v[*n].name), "%s", name);    /* ours: fits */
    (void)snprintf(v[*n].value, sizeof(v[*n].value), "%s", value); /* as large */
    ++*n;
}

static void put_number(struct env_pair *v, size_t *n, const char *name, uint32_t value)
{
    char text[16];

    (void)snprintf(text, sizeof(text), "%u", value); /* 10 digits */
    put_text(v, n, name, text);
}

int agent_env_render(const struct agent_env *a,
                     struct env_pair *ret,
                     size_t *ret_n,
                     struct err *err)
{
    size_t n = 0;
    int rc = agent_env_check(a, err);

    if (rc)
        return rc;
    put_text(ret, &n, "HVD_JOB_ID", a->job_id);
    put_number(ret, &n, "HVD_GENERATION", a->generation);
    put_number(ret, &n, "HVD_WORKER_INDEX", a->worker_index);
    put_number(ret, &n, "HVD_NUM_WORKERS", a->num_workers);
    put_number(ret, &n, "HVD_SLOTS_PER_WORKER", a->slots);
    if (a->np)
        put_number(ret, &n, "HVD_NP", a->np);
    put_text(ret, &n, "HVD_CHECKIN_ADDR", a->checkin_addr);
    put_number(ret, &n, "HVD_CHECKIN_PORT", a->checkin_port);
    put_text(ret, &n, "HVD_TOKEN_FILE", a->token_file);
    put_number(ret, &n, "HVD_START_TIMEOUT", a->start_timeout_s);
    put_text(ret, &n, "HVD_DIR", a->dir);
    if (a->termination_log[0])
        put_text(ret, &n, "HVD_TERMINATION_LOG", a->termination_log);
    if (a->world_file[0])
        put_text(ret, &n, "HVD_WORLD_FILE", a->world_file);
    *ret_n = n;
    return 0;
}

static int read_numbers(const struct env_reader *r, struct agent_env *a)
{
    int rc;

    if (!env_look(r, "HVD_WORKER_INDEX") || !env_look(r, "HVD_NUM_WORKERS"))
        return err_set(
            r->err, -EINVAL, "%s is unset: the operator sets it for every worker",
            env_look(r, "HVD_WORKER_INDEX") ? "HVD_NUM_WORKERS" : "HVD_WORKER_INDEX");
    a->slots = 1;
    a->checkin_port = AGENT_DEFAULT_PORT;
    a->start_timeout_s = AGENT_DEFAULT_START_TIMEOUT_S;
    rc = env_u32(r, "HVD_GENERATION", 0, UINT32_MAX, &a->generation);
    if (rc == 0)
        rc =
            env_u32(r, "HVD_WORKER_INDEX", 0, HOSTLIST_MAX_HOSTS - 1, &a->worker_index);
    if (rc == 0)
        rc = env_u32(r, "HVD_NUM_WORKERS", 0, HOSTLIST_MAX_HOSTS, &a->num_workers);
    if (rc == 0)
        rc = env_u32(r, "HVD_SLOTS_PER_WORKER", 0, HOST_MAX_SLOTS, &a->slots);
    if (rc == 0)
        rc = env_u32(r, "HVD_NP", 0, WORLD_MAX_RANKS, &a->np);
    if (rc == 0)
        rc = env_port(r, "HVD_CHECKIN_PORT", &a->checkin_port);
    if (rc == 0)
        rc = env_u32(r, "HVD_START_TIMEOUT", 0, UINT32_MAX, &a->start_timeout_s);
    return rc;
}

static int read_texts(const struct env_reader *r, struct agent_env *a)
{
    int rc = env_text(r, "HVD_JOB_ID", "", a->job_id, sizeof(a->job_id));

    if (rc == 0)
        rc = env_text(r, "HVD_CHECKIN_ADDR", "", a->checkin_addr,
                      sizeof(a->checkin_addr));
    if (rc == 0)
        rc = env_text(r, "HVD_TOKEN_FILE", AGENT_TOKEN_PATH, a->token_file,
                      sizeof(a->token_file));
    if (rc == 0)
        rc = env_text(r, "HVD_DIR", AGENT_DEFAULT_DIR, a->dir, sizeof(a->dir));
    if (rc == 0)
        rc = env_text(r, "HVD_TERMINATION_LOG", "", a->termination_log,
                      sizeof(a->termination_log));
    if (rc == 0)
        rc = env_text(r, "HVD_WORLD_FILE", "", a->world_file, sizeof(a->world_file));
    return rc;
}

int agent_env_parse(getenv_fn get, void *arg, struct agent_env *ret, struct err *err)
{
    const struct env_reader r = {get, arg, err};
    struct agent_env a;

    memset(&a, 0, sizeof(a));
    int rc = read_numbers(&r, &a);
    if (rc == 0)
        rc = read_texts(&r, &a);
    if (rc == 0)
        rc = agent_env_check(&a, err);
    if (rc)
        return rc;
    *ret = a;
    return 0;
}
