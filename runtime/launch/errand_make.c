/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the JOB message from horovodrun's command line and environment. Called by
 * remote.c. */
#include "runtime/launch/errand_make.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/base/parse.h"
#include "runtime/base/sha256.h"
#include "runtime/contract/elastic_env.h"
#include "runtime/launch/hosts.h"
#include "runtime/launch/self.h"

#define DEFAULT_FANOUT  32
#define MAX_FANOUT      32 /* limited by LOCAL_RANKS_CALLER_FDS */
#define PEER_TIMEOUT_MS 30000

/* Variables that are not sent: Horovod's list, and those of a login on this host. */
static bool variable_is_local(const char *pair)
{
    static const char *const names[] = {
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "MAIL",
        "OLDPWD",
        "PWD",
        "SHLVL",
        "_",
        "HOSTNAME",
        "HOSTTYPE",
        "SSH_CLIENT",
        "SSH_CONNECTION",
        "SSH_TTY",
        "DISPLAY",
        "SSH_AUTH_SOCK",
        "HOROVOD_SECRET_KEY",
        "XDG_RUNTIME_DIR",
        "TMPDIR",
        "HVD_SSH",
        ENV_ELASTIC_JOB, /* of this job, not of one in it */
        ENV_STATUS_PORT,
        "DBUS_SESSION_BUS_ADDRESS"};
    size_t len = strcspn(pair, "=");
    static const char masked[] = "CUDA_VISIBLE_DEVICES";
    if (!strncmp(pair, "BASH_FUNC_", 10))
        return true;
    if (len >= sizeof(masked) - 1
        && !memcmp(pair + len - (sizeof(masked) - 1), masked, sizeof(masked) - 1))
        return true;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strlen(names[i]) == len && !memcmp(names[i], pair, len))
            return true;
    return false;
}

static int
remote_environment(char *const *env, struct errand_words *ret, struct err *err)
{
    int rc = words_copy(env, ret, err);
    size_t kept = 0;
    for (size_t i = 0; rc == 0 && i < ret->n; i++) {
        if (variable_is_local(ret->v[i]))
            mem_free(ret->v[i]);
        else
            ret->v[kept++] = ret->v[i];
    }
    if (rc == 0) {
        ret->n = kept;
        ret->v[kept] = NULL;
    }
    return rc;
}

static int remote_vars(const struct option_var *vars,
                       size_t n,
                       struct errand_words *ret,
                       struct err *err)
{
    memset(ret, 0, sizeof(*ret));
    ret->v = mem_calloc(n + 1, sizeof(*ret->v));
    for (size_t i = 0; ret->v && i < n; i++) {
        size_t bytes = strlen(vars[i].name) + strlen(vars[i].value) + 2;
        char *pair = mem_alloc(bytes);
        if (!pair) {
            words_release(ret);
            break;
        }
        (void)snprintf(pair, bytes, "%s=%s", vars[i].name, vars[i].value);
        ret->v[ret->n++] = pair;
    }
    return ret->v ? 0 : err_set(err, -ENOMEM, "out of memory for %zu variables", n);
}

static void remote_agent_path(char *ret, size_t size_bytes)
{
    char dir[PATH_MAX];
    if (self_tree(dir, sizeof(dir), NULL) < 0)
        (void)snprintf(ret, size_bytes, "hvd-agent");
    else
        (void)snprintf(ret, size_bytes, "%.*s/bin/hvd-agent", (int)size_bytes - 16,
                       dir);
}

/* Copies text (NULL: "") to ret; an error, not truncation, if it is too long. */
static int errand_copy_text(
    const char *what, const char *text, char *ret, size_t size_bytes, struct err *err)
{
    if (text && strlen(text) >= size_bytes)
        return err_set(err, -ENAMETOOLONG, "%s is longer than %zu bytes", what,
                       size_bytes - 1);
    (void)snprintf(ret, size_bytes, "%s", text ? text : "");
    return 0;
}

static int errand_set_ssh(const struct remote_job *job,
                          uint64_t start_s,
                          struct errand *e,
                          struct err *err)
{
    const char *fanout = getenv("HVD_SSH_FANOUT");
    struct ssh_how *ssh = &e->ssh;
    int rc = errand_copy_text("HVD_SSH", getenv("HVD_SSH"), ssh->program,
                              sizeof(ssh->program), err);
    if (rc == 0)
        rc = errand_copy_text("--ssh-identity-file", job->ssh_identity, ssh->identity,
                              sizeof(ssh->identity), err);
    if (rc == 0 && job->uses_srun)
        rc = errand_copy_text("SLURM_JOB_ID", getenv("SLURM_JOB_ID"), ssh->slurm_job,
                              sizeof(ssh->slurm_job), err);
    e->fanout = job->token_file || job->uses_srun ? 0 : DEFAULT_FANOUT;
    if (rc == 0 && fanout && *fanout && !job->token_file && !job->uses_srun)
        rc = parse_u32("HVD_SSH_FANOUT", fanout, 0, MAX_FANOUT, &e->fanout, err);
    ssh->port = job->ssh_port;
    ssh->connect_s = 10; /* ssh must time out first: it knows the cause */
    if (start_s <= 10)
        ssh->connect_s = start_s > 1 ? (uint32_t)start_s - 1 : 1;
    remote_agent_path(e->agent_path, sizeof(e->agent_path));
    return rc;
}

static int errand_set_names(struct errand *e, struct err *err)
{
    uint8_t bytes[8];
    char hex[2 * sizeof(bytes) + 1];
    if (random_bytes(bytes, sizeof(bytes)) < 0
        || random_bytes(e->seed, sizeof(e->seed)) < 0)
        return err_set(err, -EIO, "no random bytes from the system");
    hex_encode(bytes, sizeof(bytes), hex);
    (void)snprintf(e->job_id, sizeof(e->job_id), HOROVODRUN_JOB_ID, hex);
    (void)snprintf(e->version, sizeof(e->version), "%s", HVD_VERSION_STRING);
    if (!getcwd(e->dir, sizeof(e->dir)))
        e->dir[0] = '\0';
    return 0;
}

static int
errand_copy_job(const struct remote_job *job, struct errand *e, struct err *err)
{
    int rc = hostlist_copy(job->hosts, &e->hosts, err);
    if (rc == 0)
        rc = words_copy(job->argv, &e->argv, err);
    if (rc == 0)
        rc = remote_environment(job->env, &e->env, err);
    if (rc == 0)
        rc = remote_vars(job->vars, job->n_vars, &e->vars, err);
    if (rc == 0)
        rc = errand_copy_text("--binding", job->binding, e->binding, sizeof(e->binding),
                              err);
    if (rc == 0)
        rc = errand_copy_text("--network-interfaces", job->nics, e->nics,
                              sizeof(e->nics), err);
    return rc < 0 ? rc
                  : errand_copy_text("the interface", job->iface, e->iface,
                                     sizeof(e->iface), err);
}

/* Names in the host list are also the host names of the ranks. */
static int errand_check_hosts(const struct hostlist *hosts, struct err *err)
{
    for (size_t i = 0; i < hosts->n; i++)
        if (strchr(hosts->v[i].name, '@'))
            return err_set(err, -EINVAL,
                           "host %.80s: a user name is not allowed here; set User in "
                           "~/.ssh/config, or HVD_SSH=\"ssh -l USER -o BatchMode=yes\"",
                           hosts->v[i].name);
    return 0;
}

int errand_make(const struct remote_job *job,
                uint64_t start_timeout_s,
                struct errand *e,
                struct err *err)
{
    const char *timeout = getenv("HVD_PEER_TIMEOUT");
    uint64_t ms = PEER_TIMEOUT_MS;
    int rc = errand_check_hosts(job->hosts, err);
    if (rc == 0)
        rc = errand_copy_job(job, e, err);
    if (rc == 0)
        rc = errand_set_names(e, err);
    if (rc == 0)
        rc = errand_set_ssh(job, start_timeout_s, e, err);
    if (rc == 0 && timeout)
        rc = parse_duration_ms("HVD_PEER_TIMEOUT", timeout, 100, 86400000, &ms, err);
    e->np = job->np;
    e->peer_timeout_ms = (uint32_t)ms;
    e->is_verbose = job->is_verbose;
    e->roles = job->roles;
    e->local = (uint32_t)job->hosts->n;
    for (uint32_t h = (uint32_t)job->hosts->n; h-- > 0;)
        if (host_is_local(job->hosts->v[h].name))
            e->local = h; /* the first one; further names of this host use ssh */
    return rc;
}
