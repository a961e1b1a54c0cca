/* SPDX-License-Identifier: Apache-2.0 */
/* Rendering and parsing of the launch contract; README.md is its specification,
 * env_table.h its names. Parsing is strict: a set is complete, or it is an error that
 * names the missing variable, because a process with a guessed rank would silently
 * train the wrong model. Property, tested: contract_parse(contract_render(c)) equals c
 * for every accepted c.
 *
 * NCCL_SOCKET_IFNAME and the variables after it are for other libraries; of the
 * interface only HOROVOD_GLOO_IFACE is read back. */
#include "runtime/contract/contract.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/parse.h"
#include "runtime/contract/env_reader.h"
#include "runtime/contract/env_table.h"

#define NAME_OF(name, writer, meaning) #name,
#define PATTERN_OF(pattern)            pattern,

const char *const contract_inherited[] = {
    CONTRACT_ENV(NAME_OF) CONTRACT_ENV_OTHERS(NAME_OF) FOREIGN_ENV(PATTERN_OF) NULL};

static const struct place_names horovod_names = {
    "HOROVOD_RANK",       "HOROVOD_SIZE",       "HOROVOD_LOCAL_RANK",
    "HOROVOD_LOCAL_SIZE", "HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE"};

bool contract_is_inherited(const char *name)
{
    for (const char *const *p = contract_inherited; *p; p++) {
        size_t n = strlen(*p);

        if ((*p)[n - 1] == '*' ? strncmp(*p, name, n - 1) == 0 : strcmp(*p, name) == 0)
            return true;
    }
    return false;
}

bool contract_is_task(const struct contract *c)
{
    return c->launcher == LAUNCHER_SLURM
           || (c->launcher == LAUNCHER_RINGMASTER
               && strncmp(c->job_id, "slurm.", 6) == 0);
}

const char *launcher_name(enum launcher l)
{
    switch (l) {
    case LAUNCHER_NONE:
        return "none";
    case LAUNCHER_RINGMASTER:
        return "horovod";
    case LAUNCHER_TORCHRUN:
        return "torchrun";
    case LAUNCHER_OPENMPI:
        return "openmpi";
    case LAUNCHER_SLURM:
        return "slurm";
    case LAUNCHER_MPIEXEC:
        return "mpiexec";
    }
    return "unknown";
}

const char *launcher_channel_name(enum launcher_channel c)
{
    switch (c) {
    case CHANNEL_NONE:
        return "none";
    case CHANNEL_PMI:
        return "PMI";
    case CHANNEL_PMIX:
        return "PMIx";
    }
    return "unknown";
}

void contract_init(struct contract *c)
{
    memset(c, 0, sizeof(*c));
    c->launcher = LAUNCHER_NONE;
    c->place.size = c->place.local_size = c->place.cross_size = 1;
    c->token_source = TOKEN_NONE;
    c->token_fd = c->pmi_fd = -1;
    memcpy(c->hostname, "localhost", sizeof("localhost"));
}

/* Checks for both directions; the names are the variables'. */
static int contract_check(const struct contract *c, struct err *err)
{
    int rc = place_check_named(&c->place, &horovod_names, err);

    if (rc)
        return rc;
    for (const char *p = c->job_id; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return err_set(err, -EINVAL, "HVD_JOB_ID has a control character");
    if (c->token_source == TOKEN_FD && c->token_fd < 0)
        return err_set(err, -EINVAL, "HVD_TOKEN_FD=%d is no descriptor", c->token_fd);
    if (c->token_source == TOKEN_FILE && !c->token_file[0])
        return err_set(err, -EINVAL, "HVD_TOKEN_FILE is empty");
    if (c->rdv_host[0] && c->rdv_port == 0)
        return err_set(err, -EINVAL,
                       "HVD_RENDEZVOUS_ADDR=%.80s requires HVD_RENDEZVOUS_PORT",
                       c->rdv_host);
    if (c->place.size == 1)
        return 0;
    if (!c->rdv_host[0] && !c->elastic[0])
        return err_set(
            err, -EINVAL,
            "HOROVOD_SIZE=%u requires HVD_RENDEZVOUS_ADDR and HVD_RENDEZVOUS_PORT",
            c->place.size);
    if (!c->job_id[0])
        return err_set(err, -EINVAL, "HOROVOD_SIZE=%u requires HVD_JOB_ID",
                       c->place.size);
    if (c->token_source == TOKEN_NONE)
        return err_set(err, -EINVAL,
                       "HOROVOD_SIZE=%u requires HVD_TOKEN_FILE or HVD_TOKEN_FD",
                       c->place.size);
    return 0;
}

/* --- rendering --- */

struct contract_writer {
    struct env_pair *v;
    size_t n;
};

static void
writer_put(struct contract_writer *w, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Every field that a value is made of is shorter than the value's room. */
static void
writer_put(struct contract_writer *w, const char *name, const char *fmt, ...)
{
    struct env_pair *e = &w->v[w->n++];
    va_list ap;

    (void)snprintf(e->name, sizeof(e->name), "%s", name);
    va_start(ap, fmt);
    (void)vsnprintf(e->value, sizeof(e->value), fmt, ap);
    va_end(ap);
}

static void put_if(struct contract_writer *w, const char *name, const char *value)
{
    if (value[0])
        writer_put(w, name, "%s", value);
}

static void put_place(struct contract_writer *w, const struct contract *c)
{
    writer_put(w, "HOROVOD_RANK", "%u", c->place.rank);
    writer_put(w, "HOROVOD_SIZE", "%u", c->place.size);
    writer_put(w, "HOROVOD_LOCAL_RANK", "%u", c->place.local_rank);
    writer_put(w, "HOROVOD_LOCAL_SIZE", "%u", c->place.local_size);
    writer_put(w, "HOROVOD_CROSS_RANK", "%u", c->place.cross_rank);
    writer_put(w, "HOROVOD_CROSS_SIZE", "%u", c->place.cross_size);
    writer_put(w, "HVD_HOST_INDEX", "%u", c->place.host);
    put_if(w, "HOROVOD_HOSTNAME", c->hostname);
}

static void put_rendezvous(struct contract_writer *w, const struct contract *c)
{
    put_if(w, "HVD_JOB_ID", c->job_id);
    writer_put(w, "HVD_GENERATION", "%u", c->generation);
    if (c->rdv_host[0]) {
        writer_put(w, "HVD_RENDEZVOUS_ADDR", "%s", c->rdv_host);
        writer_put(w, "HVD_RENDEZVOUS_PORT", "%u", c->rdv_port);
    }
    if (c->rank0_serves)
        writer_put(w, "HVD_RENDEZVOUS_RANK0", "1");
    if (c->token_source == TOKEN_FILE)
        writer_put(w, "HVD_TOKEN_FILE", "%s", c->token_file);
    if (c->token_source == TOKEN_FD)
        writer_put(w, "HVD_TOKEN_FD", "%d", c->token_fd);
    put_if(w, "HVD_HOSTFILE", c->hostfile);
    put_if(w, "HVD_ELASTIC", c->elastic);
    if (c->elastic[0])
        writer_put(w, "HOROVOD_ELASTIC", "1");
}

/* Only with an address: RANK without MASTER_ADDR would mislead torch.distributed. */
static void put_others(struct contract_writer *w, const struct contract *c)
{
    bool is_v6 = strchr(c->master_addr, ':') != NULL;

    put_if(w, "HOROVOD_GLOO_IFACE", c->iface);
    put_if(w, "NCCL_SOCKET_IFNAME", c->iface);
    put_if(w, "GLOO_SOCKET_IFNAME", c->iface);
    if (!c->master_addr[0])
        return;
    writer_put(w, "MASTER_ADDR", "%s", c->master_addr);
    writer_put(w, "MASTER_PORT", "%u", c->master_port);
    writer_put(w, "RANK", "%u", c->place.rank);
    writer_put(w, "WORLD_SIZE", "%u", c->place.size);
    writer_put(w, "LOCAL_RANK", "%u", c->place.local_rank);
    writer_put(w, "LOCAL_WORLD_SIZE", "%u", c->place.local_size);
    writer_put(w, "GROUP_RANK", "%u", c->place.host);
    writer_put(w, "ROLE_RANK", "%u", c->place.rank);
    writer_put(w, "ROLE_WORLD_SIZE", "%u", c->place.size);
    writer_put(w, "JAX_COORDINATOR_ADDRESS", is_v6 ? "[%s]:%u" : "%s:%u",
               c->master_addr, c->master_port);
    writer_put(w, "JAX_NUM_PROCESSES", "%u", c->place.size);
    writer_put(w, "JAX_PROCESS_ID", "%u", c->place.rank);
}

int contract_render(const struct contract *c,
                    struct env_pair *ret,
                    size_t *ret_n,
                    struct err *err)
{
    struct contract_writer w = {.v = ret};

    if (c->token_source == TOKEN_WEAK)
        return err_set(err, -EINVAL, "a launch contract requires a real job token");
    if (c->master_addr[0] && c->master_port == 0)
        return err_set(err, -EINVAL, "MASTER_ADDR=%.80s requires MASTER_PORT",
                       c->master_addr);
    int rc = contract_check(c, err);
    if (rc)
        return rc;
    put_place(&w, c);
    put_rendezvous(&w, c);
    put_others(&w, c);
    *ret_n = w.n;
    return 0;
}

/* --- reading --- */

static const char whole[] =
    "but HOROVOD_RANK or HOROVOD_SIZE is set: the set of variables is incomplete";

static int contract_read_place(const struct env_reader *r, struct place *p)
{
    const uint32_t max = WORLD_MAX_RANKS;
    int rc = env_need_u32(r, "HOROVOD_RANK", 0, max - 1, &p->rank, whole);

    if (rc == 0)
        rc = env_need_u32(r, "HOROVOD_SIZE", 1, max, &p->size, whole);
    if (rc == 0)
        rc = env_need_u32(r, "HOROVOD_LOCAL_RANK", 0, max - 1, &p->local_rank, whole);
    if (rc == 0)
        rc = env_need_u32(r, "HOROVOD_LOCAL_SIZE", 1, max, &p->local_size, whole);
    if (rc == 0)
        rc = env_need_u32(r, "HOROVOD_CROSS_RANK", 0, max - 1, &p->cross_rank, whole);
    if (rc == 0)
        rc = env_need_u32(r, "HOROVOD_CROSS_SIZE", 1, max, &p->cross_size, whole);
    p->host = p->cross_rank; /* right for hosts of one size */
    if (rc == 0)
        rc = env_u32(r, "HVD_HOST_INDEX", 0, HOSTLIST_MAX_HOSTS - 1, &p->host);
    return rc;
}

static int read_token(const struct env_reader *r, struct contract *c)
{
    uint32_t fd = 0;
    const char *s = env_look(r, "HVD_TOKEN_FD");

    if (s && env_look(r, "HVD_TOKEN_FILE"))
        return err_set(r->err, -EINVAL,
                       "HVD_TOKEN_FILE=%.200s and HVD_TOKEN_FD=%.20s are both set",
                       env_look(r, "HVD_TOKEN_FILE"), s);
    if (s) {
        if (parse_u32("HVD_TOKEN_FD", s, 0, INT32_MAX, &fd, r->err))
            return err_recode(r->err, -EINVAL);
        c->token_source = TOKEN_FD;
        c->token_fd = (int)fd;
        return 0;
    }
    int rc = env_text(r, "HVD_TOKEN_FILE", "", c->token_file, sizeof(c->token_file));
    if (rc == 0 && c->token_file[0])
        c->token_source = TOKEN_FILE;
    return rc;
}

static int read_rendezvous(const struct env_reader *r, struct contract *c)
{
    const char *serves = env_look(r, "HVD_RENDEZVOUS_RANK0");
    int rc = env_text(r, "HVD_RENDEZVOUS_ADDR", "", c->rdv_host, sizeof(c->rdv_host));

    if (rc == 0 && !c->rdv_host[0] && c->place.size > 1
        && env_look(r, "HOROVOD_GLOO_RENDEZVOUS_ADDR"))
        return err_set(
            r->err, -EINVAL,
            "HOROVOD_GLOO_RENDEZVOUS_ADDR=%.80s without HVD_RENDEZVOUS_ADDR: "
            "the original horovodrun has started this process; start it by "
            "Ringmaster's horovodrun, which comes before it in PATH after "
            "installation",
            env_look(r, "HOROVOD_GLOO_RENDEZVOUS_ADDR"));
    if (rc == 0)
        rc = env_port(r, "HVD_RENDEZVOUS_PORT", &c->rdv_port);
    if (!c->rdv_host[0])
        c->rdv_port = 0; /* half a pair is unusable */
    if (rc == 0 && serves
        && parse_bool("HVD_RENDEZVOUS_RANK0", serves, &c->rank0_serves, r->err))
        rc = err_recode(r->err, -EINVAL);
    if (rc == 0)
        rc = env_text(r, "HVD_JOB_ID", "", c->job_id, sizeof(c->job_id));
    if (rc == 0)
        rc = env_u32(r, "HVD_GENERATION", 0, UINT32_MAX, &c->generation);
    return rc;
}

static int read_others(const struct env_reader *r, struct contract *c)
{
    int rc = env_text(r, "HVD_HOSTFILE", "", c->hostfile, sizeof(c->hostfile));

    if (rc == 0)
        rc = env_text(r, "HVD_ELASTIC", "", c->elastic, sizeof(c->elastic));
    if (rc == 0)
        rc = env_text(r, "HOROVOD_HOSTNAME", "", c->hostname, sizeof(c->hostname));
    if (rc == 0)
        rc = env_text(r, "HOROVOD_GLOO_IFACE", "", c->iface, sizeof(c->iface));
    if (rc == 0)
        rc = env_text(r, "MASTER_ADDR", "", c->master_addr, sizeof(c->master_addr));
    if (rc == 0 && c->master_addr[0])
        rc = env_port(r, "MASTER_PORT", &c->master_port);
    if (c->master_port == 0)
        c->master_addr[0] = '\0'; /* half a pair is unusable */
    return rc;
}

int contract_parse(getenv_fn get, void *arg, struct contract *ret, struct err *err)
{
    const struct env_reader r = {get, arg, err};
    struct contract c;

    if (!env_look(&r, "HOROVOD_RANK") && !env_look(&r, "HOROVOD_SIZE"))
        return err_set(err, -ENOENT, "HOROVOD_RANK and HOROVOD_SIZE are unset");
    contract_init(&c);
    c.launcher = LAUNCHER_RINGMASTER;
    int rc = contract_read_place(&r, &c.place);
    if (rc == 0)
        rc = place_check_named(&c.place, &horovod_names, err);
    if (rc == 0)
        rc = read_rendezvous(&r, &c);
    if (rc == 0)
        rc = read_token(&r, &c);
    if (rc == 0)
        rc = read_others(&r, &c);
    if (rc == 0)
        rc = contract_check(&c, err);
    if (rc)
        return rc;
    *ret = c;
    return 0;
}
