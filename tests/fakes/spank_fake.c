/* SPDX-License-Identifier: Apache-2.0 */
/* See spank_fake.h. Mutable globals: the one fake Slurm of the test program. */
#include "tests/fakes/spank_fake.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

#include "runtime/base/mem.h"
#include "spank_plugin/seal.h"

struct spank_handle fake;
slurm_conf_t slurm_conf;
static struct spank_option *option;
static struct {
    char text[8192];
    int n;
} * messages;
static uid_t seal_user;
static bool seal_fails;
static char *command; /* argv[0] at first; Slurm's, so the plugin does not free it */

void fake_reset(int context)
{
    for (char **e = fake.env; *e; e++)
        free(*e);
    if (fake.argv[0] != command)
        mem_free(fake.argv[0]);
    mem_free(command);
    memset(&fake, 0, sizeof(fake));
    memset(&slurm_conf, 0, sizeof(slurm_conf));
    fake.context = context;
    fake.has_items = true;
    option = NULL;
    command = fake.argv[0] = mem_strdup("python");
    if (!messages)
        messages = mmap(NULL, sizeof(*messages), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (messages == MAP_FAILED || !fake.argv[0])
        abort();
    memset(messages, 0, sizeof(*messages));
    seal_user = geteuid();
    seal_fails = false;
}

static char **env_slot(const char *name)
{
    size_t n = strlen(name);
    char **e = fake.env;
    while (*e && !(strncmp(*e, name, n) == 0 && (*e)[n] == '='))
        e++;
    return e;
}

void fake_env(const char *name, const char *value)
{
    char **e = env_slot(name);
    free(*e);
    if (!value) {
        for (; *e; e++)
            e[0] = e[1];
        return;
    }
    size_t n = strlen(name) + strlen(value) + 2;
    *e = malloc(n);
    if (!*e || e == fake.env + FAKE_MAX_ENV)
        abort();
    (void)snprintf(*e, n, "%s=%s", name, value);
}

const char *fake_getenv(const char *name)
{
    char **e = env_slot(name);
    return *e ? *e + strlen(name) + 1 : NULL;
}

int fake_option(const char *arg, int remote)
{
    return option->cb(option->val, arg, remote);
}

bool fake_option_is_registered(void)
{
    return option != NULL;
}

const char *fake_messages(void)
{
    return messages->text;
}

int fake_message_count(void)
{
    return messages->n;
}

int fake_kill_on_bad_exit(void)
{
    return slurm_conf.kill_on_bad_exit;
}

void fake_seal_fail(void)
{
    seal_fails = true;
}

void fake_seal_user(uid_t uid)
{
    seal_user = uid;
}

/* --- Slurm's functions --- */

static void add_message(const char *fmt, va_list ap)
{
    char *text = messages->text;
    size_t size_bytes = sizeof(messages->text), n = strlen(text);
    (void)vsnprintf(text + n, size_bytes - n, fmt, ap);
    n = strlen(text);
    (void)snprintf(text + n, size_bytes - n, "\n");
    messages->n++;
}

void slurm_error(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    add_message(fmt, ap);
    va_end(ap);
}

void slurm_spank_log(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    add_message(fmt, ap);
    va_end(ap);
}

spank_context_t spank_context(void)
{
    return (spank_context_t)fake.context;
}

const char *spank_strerror(spank_err_t err)
{
    return err == ESPANK_SUCCESS ? "Success" : "Not available in this callback";
}

spank_err_t spank_option_register(spank_t sp, struct spank_option *opt)
{
    option = opt;
    return ESPANK_SUCCESS;
}

static const uint32_t *item_number(const struct spank_handle *sp, spank_item_t item)
{
    const struct {
        spank_item_t item;
        const uint32_t *number;
    } all[] = {{S_JOB_ID, &sp->job_id},
               {S_JOB_STEPID, &sp->step_id},
               {S_JOB_NODEID, &sp->node_id},
               {S_JOB_TOTAL_TASK_COUNT, &sp->n_tasks}};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (all[i].item == item)
            return all[i].number;
    return NULL;
}

spank_err_t spank_get_item(spank_t sp, spank_item_t item, ...)
{
    spank_err_t rc = sp->has_items ? ESPANK_SUCCESS : ESPANK_NOT_AVAIL;
    va_list ap;
    va_start(ap, item);
    void *ret = va_arg(ap, void *);
    char ***ret_argv = item == S_JOB_ARGV ? va_arg(ap, char ***) : NULL;
    va_end(ap);
    const uint32_t *number = item_number(sp, item);
    if (rc == ESPANK_SUCCESS && number)
        *(uint32_t *)ret = *number;
    else if (rc == ESPANK_SUCCESS && item == S_JOB_UID)
        *(uid_t *)ret = geteuid();
    else if (rc == ESPANK_SUCCESS && item == S_JOB_GID)
        *(gid_t *)ret = getegid();
    else if (rc == ESPANK_SUCCESS && item == S_JOB_ENV && sp->context == S_CTX_REMOTE)
        *(char ***)ret = sp->env;
    else if (rc == ESPANK_SUCCESS && item == S_TASK_ID)
        *(int *)ret = 0;
    else if (rc == ESPANK_SUCCESS && item == S_JOB_LOCAL_TASK_COUNT)
        *(uint32_t *)ret = 1;
    else if (rc == ESPANK_SUCCESS && item == S_TASK_EXIT_STATUS)
        *(int *)ret = sp->exit_status;
    else if (rc == ESPANK_SUCCESS && item == S_JOB_ARGV) {
        *(int *)ret = 1;
        *ret_argv = sp->argv;
    } else
        rc = ESPANK_NOT_AVAIL;
    return rc;
}

spank_err_t spank_setenv(spank_t sp, const char *name, const char *value, int overwrite)
{
    fake_env(name, value);
    return ESPANK_SUCCESS;
}

spank_err_t spank_unsetenv(spank_t sp, const char *name)
{
    fake_env(name, NULL);
    return ESPANK_SUCCESS;
}

spank_err_t
spank_job_control_setenv(spank_t sp, const char *name, const char *value, int overwrite)
{
    char whole[128];
    (void)snprintf(whole, sizeof(whole), "SLURM_SPANK_%s", name);
    fake_env(whole, value);
    return ESPANK_SUCCESS;
}

/* --- munge --- */

int seal_close(
    const char *auth_info, const void *p, size_t n, char **ret_cred, struct err *err)
{
    if (seal_fails)
        return err_set(err, -EIO, "munge cannot encrypt the job token: it is down");
    char *cred = mem_alloc(n + 64);
    if (!cred)
        return err_set(err, -ENOMEM, "out of memory");
    (void)snprintf(cred, n + 64, "FAKE:%u:%.*s", (unsigned)seal_user, (int)n,
                   (const char *)p);
    *ret_cred = cred;
    return 0;
}

int seal_open(const char *auth_info,
              const char *cred,
              void **ret_p,
              size_t *ret_n,
              struct err *err)
{
    unsigned uid;
    int at = 0;
    if (sscanf(cred, "FAKE:%u:%n", &uid, &at) != 1)
        return err_set(err, -EIO,
                       "munge cannot decrypt the job token: Invalid credential");
    if (uid != (unsigned)geteuid())
        return err_set(err, -EACCES, "the job token was created by user %u", uid);
    *ret_n = strlen(cred + at);
    *ret_p = mem_strdup(cred + at);
    return *ret_p ? 0 : err_set(err, -ENOMEM, "out of memory");
}
