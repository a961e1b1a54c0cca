/* SPDX-License-Identifier: Apache-2.0 */
/* The only reader of Slurm's items, environment and configuration.
 *
 * slurm.conf: libslurm keeps the parsed file in the global `slurm_conf`, whose type is
 * public and whose symbol every Slurm program exports. It is referenced weakly: a Slurm
 * without it loses the features (SrunPortRange, AuthInfo's socket, ending the step at
 * the first failed task), but the plugin still loads. The layout of that struct changes
 * between releases, as does the whole SPANK ABI; Slurm itself refuses a plugin that was
 * compiled for another release.
 *
 * Not used on purpose: spank_job_control_getenv (crashes slurmstepd in a prolog, Slurm
 * 22.05 to 25.11), and the items S_TASK_GLOBAL_ID and S_JOB_TOTAL_TASK_COUNT for ranks
 * (in a heterogeneous step they count one component; SLURM_PROCID and
 * SLURM_STEP_NUM_TASKS count the step). */
#include "spank_plugin/slurm_io.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

#include "runtime/base/fd.h"
#include "runtime/base/mem.h"

#define MAX_COMMAND_LINE (4u << 20)

extern slurm_conf_t slurm_conf __attribute__((weak));

static int item_failed(const char *name, spank_err_t rc, struct err *err)
{
    return err_set(err, -ENOENT, "Slurm does not provide %s: %s", name,
                   spank_strerror(rc));
}

int slurm_io_step(struct spank_handle *sp, struct plugin_step *ret, struct err *err)
{
    struct plugin_step s = {0};
    spank_err_t rc = spank_get_item(sp, S_JOB_ID, &s.job_id);
    if (rc != ESPANK_SUCCESS)
        return item_failed("the job id", rc, err);
    rc = spank_get_item(sp, S_JOB_STEPID, &s.step_id);
    if (rc != ESPANK_SUCCESS)
        return item_failed("the step id", rc, err);
    rc = spank_get_item(sp, S_JOB_UID, &s.uid);
    if (rc != ESPANK_SUCCESS)
        return item_failed("the user of the job", rc, err);
    rc = spank_get_item(sp, S_JOB_GID, &s.gid);
    if (rc != ESPANK_SUCCESS)
        return item_failed("the group of the job", rc, err);
    rc = spank_get_item(sp, S_JOB_TOTAL_TASK_COUNT, &s.n_tasks);
    if (rc != ESPANK_SUCCESS)
        return item_failed("the number of tasks", rc, err);
    if (spank_context() == S_CTX_REMOTE) {
        rc = spank_get_item(sp, S_JOB_NODEID, &s.node_id);
        if (rc != ESPANK_SUCCESS)
            return item_failed("the node's number", rc, err);
    }
    *ret = s;
    return 0;
}

bool slurm_io_runs_tasks(const struct plugin_step *s)
{
    return s->step_id != SLURM_BATCH_SCRIPT && s->step_id != SLURM_EXTERN_CONT
           && s->step_id != SLURM_INTERACTIVE_STEP && s->step_id != SLURM_PENDING_STEP;
}

char **slurm_io_environ(struct spank_handle *sp)
{
    char **env = NULL;
    return spank_get_item(sp, S_JOB_ENV, &env) == ESPANK_SUCCESS ? env : NULL;
}

const char *slurm_io_getenv(void *sp, const char *name)
{
    /* the array itself, not spank_getenv(): node lists have no upper length */
    char **env = slurm_io_environ(sp);
    size_t n = strlen(name);
    for (; env && *env; env++)
        if (strncmp(*env, name, n) == 0 && (*env)[n] == '=')
            return *env + n + 1;
    return NULL;
}

int slurm_io_setenv(struct spank_handle *sp,
                    const char *name,
                    const char *value,
                    struct err *err)
{
    spank_err_t rc = spank_setenv(sp, name, value, 1);
    if (rc != ESPANK_SUCCESS)
        return err_set(err, -ENOMEM, "Slurm does not set %s: %s", name,
                       spank_strerror(rc));
    return 0;
}

void slurm_io_unsetenv(struct spank_handle *sp, const char *name)
{
    (void)spank_unsetenv(sp, name); /* a missing variable is no error */
}

char **slurm_io_argv(struct spank_handle *sp, int *ret_n)
{
    char **argv = NULL;
    spank_err_t rc = spank_get_item(sp, S_JOB_ARGV, ret_n, &argv);
    return rc == ESPANK_SUCCESS && *ret_n > 0 && argv && argv[0] ? argv : NULL;
}

/* Slurm forwards an option in a variable of this name (spank.c, _option_setenv); it adds
 * "SLURM_SPANK_" to those of spank_job_control_setenv. */
int slurm_io_forward(struct spank_handle *sp, const char *value, struct err *err)
{
    spank_err_t rc =
        spank_job_control_setenv(sp, "_SLURM_SPANK_OPTION_hvd_hvd", value, 1);
    if (rc != ESPANK_SUCCESS)
        return err_set(err, -ENOMEM, "Slurm does not forward --hvd: %s",
                       spank_strerror(rc));
    return 0;
}

const char *slurm_io_program(void)
{
    return program_invocation_short_name;
}

/* Slurm parses its options by getopt, which leaves the place of the command in optind. */
void slurm_io_next_word(char *ret, size_t size_bytes)
{
    AUTOFREE char *text = NULL;
    const char *before = "";
    size_t n, len;
    int i = 0;
    ret[0] = '\0';
    if (fd_read_file("/proc/self/cmdline", MAX_COMMAND_LINE, &text, &n, NULL))
        return;
    for (const char *p = text; p < text + n; p += len, i++) {
        len = strlen(p) + 1;
        if (i == optind && strcmp(before, "--hvd") == 0)
            (void)snprintf(ret, size_bytes, "%s", p); /* cut: no key */
        before = p;
    }
}

bool slurm_io_exit_status(struct spank_handle *sp, int *ret)
{
    return spank_get_item(sp, S_TASK_EXIT_STATUS, ret) == ESPANK_SUCCESS;
}

bool slurm_io_local_task(struct spank_handle *sp, uint32_t *ret)
{
    int id = -1;
    if (spank_get_item(sp, S_TASK_ID, &id) != ESPANK_SUCCESS || id < 0)
        return false;
    *ret = (uint32_t)id;
    return true;
}

bool slurm_io_local_tasks(struct spank_handle *sp, uint32_t *ret)
{
    return spank_get_item(sp, S_JOB_LOCAL_TASK_COUNT, ret) == ESPANK_SUCCESS;
}

const char *slurm_io_auth_info(void)
{
    return &slurm_conf ? slurm_conf.authinfo : NULL;
}

const uint16_t *slurm_io_ports(void)
{
    return &slurm_conf ? slurm_conf.srun_port_range : NULL;
}

void slurm_io_kill_on_bad_exit(void)
{
    if (&slurm_conf)
        slurm_conf.kill_on_bad_exit = 1;
}

/* Slurm itself ends srun so, and its helper process then removes the step. */
void slurm_io_end_srun(void)
{
    exit(1);
}

void slurm_io_end_with(const char *text)
{
    (void)fputs(text, stdout);
    exit(fflush(stdout) != 0);
}

void slurm_io_end_task(void)
{
    _exit(1); /* a copy of slurmstepd: no handler of its may run */
}

void slurm_io_error(const char *fmt, ...)
{
    char line[1024];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    slurm_error("hvd: %s", line);
}

void slurm_io_print(const char *fmt, ...)
{
    char line[1024];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    slurm_spank_log("hvd: %s", line);
}
