/* SPDX-License-Identifier: Apache-2.0 */
/* One task, called by plugin.c in task_init, where the environment is complete:
 *
 *   1. its settings        the node's rules, on keys and environment
 *   2. its place           SLURM_* -> contract
 *   3. its environment     without the variables of outer launchers and the ticket, with
 *                          the contract, and with the runtime's folders before the
 *                          user's in PATH and PYTHONPATH
 *   4. its program         the guard is taken from its name
 *   5. its node            the first task of a node checks it (first_task.c)
 *   6. the gate            waits until the tasks of all nodes have come this far
 *
 * The node's error, or that of 1 to 5, is passed to the gate, and srun prints it. A
 * task that cannot reach the gate prints its error itself. Earlier callbacks cannot:
 * Slurm 22.05 suppresses their output. */
#include "spank_plugin/task.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "runtime/base/mem.h"
#include "runtime/base/strbuf.h"
#include "runtime/contract/port.h"
#include "spank_plugin/first_task.h"
#include "spank_plugin/gate.h"
#include "spank_plugin/guard.h"
#include "spank_plugin/layout.h"
#include "spank_plugin/output.h"
#include "spank_plugin/pages.h"
#include "spank_plugin/runtime_dir.h"
#include "spank_plugin/ticket.h"

#define MAX_PATH_BYTES (1u << 20)

/* Slurm is the launcher: its own variables, and those of a PMI that it provides,
 * stay. */
static bool is_slurms_own(const char *name)
{
    static const char *const prefixes[] = {"SLURM", "SRUN", "PMI", "PMIX"};
    for (size_t i = 0; i < ARRAY_LEN(prefixes); i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

/* Removing a variable moves the array: restart after each one. */
static void remove_inherited(struct spank_handle *sp)
{
    char name[128];
    char **env = slurm_io_environ(sp);
    while (env && *env) {
        size_t n = strcspn(*env, "=");
        env++;
        if (n >= sizeof(name))
            continue;
        memcpy(name, env[-1], n);
        name[n] = '\0';
        if (contract_is_inherited(name) && !is_slurms_own(name)) {
            slurm_io_unsetenv(sp, name);
            env = slurm_io_environ(sp);
        }
    }
}

static int prepend_path(struct spank_handle *sp,
                        const char *name,
                        const char *dir,
                        const char *sub,
                        struct err *err)
{
    CLEANUP(strbuf_release) struct strbuf b;
    strbuf_init(&b, MAX_PATH_BYTES);
    const char *old = slurm_io_getenv(sp, name);
    strbuf_printf(&b, "%s/%s", dir, sub);
    if (old && *old)
        strbuf_printf(&b, ":%s", old);
    if (strbuf_status(&b))
        return err_set(err, -E2BIG, "%s is longer than %u bytes", name, MAX_PATH_BYTES);
    return slurm_io_setenv(sp, name, strbuf_str(&b), err);
}

static int
add_runtime(struct spank_handle *sp, const struct plugin_config *cfg, struct err *err)
{
    if (runtime_dir_is_absent(cfg))
        return 0;
    int rc = runtime_dir_check(cfg, err);
    if (!rc)
        rc = prepend_path(sp, "PYTHONPATH", cfg->dir, "python", err);
    return rc ? rc : prepend_path(sp, "PATH", cfg->dir, "bin", err);
}

static int
add_options(struct spank_handle *sp, const struct step_options *opt, struct err *err)
{
    int rc = 0;
    for (uint32_t i = 0; i < opt->n && !rc; i++)
        if (opt->v[i].setting < KNOB_COUNT)
            rc = slurm_io_setenv(sp, setting_name(opt->v[i].setting),
                                 opt->text + opt->v[i].at, err);
    return rc;
}

/* After remove_inherited: a TF_CONFIG from outside is not this step's. */
static int add_tf_config(struct spank_handle *sp,
                         const struct node_side *node,
                         const struct tf_roles *roles,
                         struct err *err)
{
    CLEANUP(strbuf_release) struct strbuf text;
    strbuf_init(&text, TF_CONFIG_MAX_BYTES);
    if (roles->framework == FRAMEWORK_HVD)
        return 0;
    int rc =
        layout_tf_config(slurm_io_getenv, sp, roles,
                         port_derive(&node->ticket.token, "TF_CONFIG"), &text, err);
    return rc ? rc : slurm_io_setenv(sp, "TF_CONFIG", strbuf_str(&text), err);
}

/* A step that hvd-status cannot see runs all the same. */
static int add_pages(struct spank_handle *sp,
                     const struct node_side *node,
                     const struct contract *c,
                     bool is_verbose,
                     struct err *err)
{
    char dir[CONTRACT_PATH_MAX];
    struct err why = ERR_INIT;
    const char *set = slurm_io_getenv(sp, "HVD_STATS_DIR");
    if (pages_make(node->name, &c->place, set, dir, sizeof(dir), &why) == 0)
        return slurm_io_setenv(sp, "HVD_STATS_DIR", dir, err);
    if (is_verbose)
        slurm_io_print("%s: hvd-status does not show rank %u: %s", c->hostname,
                       c->place.rank, why.text);
    return 0;
}

static int task_read_place(struct spank_handle *sp,
                           const struct node_side *node,
                           const struct step_options *opt,
                           struct contract *ret,
                           struct err *err)
{
    const char *iface = step_options_get(opt, OWN_IFACE);
    const struct layout_paths paths = {
        .token_file = node->token_file,
        .hostfile = node->hostfile,
        .iface = iface ? iface : "",
        .rdv_port = node->ticket.port,
        .generation = node->ticket.generation,
        .master_port = port_derive(&node->ticket.token, "master port"),
    };
    return layout_contract(slurm_io_getenv, sp, &paths, ret, err);
}

static int task_set_environment(struct spank_handle *sp,
                                const struct node_side *node,
                                const struct contract *c,
                                const struct plugin_config *cfg,
                                const struct step_options *opt,
                                struct err *err)
{
    const struct tf_roles roles = step_options_roles(opt);
    int rc = node_side_check_visible(node, err);
    if (rc)
        return rc;
    AUTOFREE struct env_pair *env = mem_calloc(CONTRACT_MAX_ENV, sizeof(*env));
    if (!env)
        return err_set(err, -ENOMEM, "out of memory");
    size_t n = 0;
    rc = contract_render(c, env, &n, err);
    if (rc)
        return rc;
    remove_inherited(sp);
    slurm_io_unsetenv(sp, TICKET_ENV);
    slurm_io_unsetenv(sp, KEYS_ENV);
    slurm_io_unsetenv(sp, MOUNTS_ENV);
    slurm_io_unsetenv(sp, FIRST_HOST_ENV);
    for (size_t i = 0; i < n && !rc; i++)
        rc = slurm_io_setenv(sp, env[i].name, env[i].value, err);
    if (!rc)
        rc = add_runtime(sp, cfg, err);
    if (!rc)
        rc = add_options(sp, opt, err);
    if (!rc)
        rc = add_tf_config(sp, node, &roles, err);
    if (!rc)
        rc = add_pages(sp, node, c, step_options_is_on(opt, OWN_VERBOSE), err);
    if (!rc && step_options_is_on(opt, OWN_VERBOSE) && c->place.local_rank == 0)
        slurm_io_print(
            "%s: %u of %u tasks here, the first is rank %u; rendezvous at %s "
            "port %u",
            c->hostname, c->place.local_size, c->place.size, c->place.rank, c->rdv_host,
            c->rdv_port);
    return rc;
}

/* "node2: ", for a step has many. */
static void add_node_name(struct spank_handle *sp, struct err *err)
{
    const char *node = slurm_io_getenv(sp, "SLURMD_NODENAME");
    if (node)
        (void)err_prefix(err, "%s", node); /* the code stays */
}

/* Steps 1 to 5; err: their error, or that of the node. False: the task has no place. */
static bool task_prepare(struct spank_handle *sp,
                         const struct node_side *node,
                         const struct plugin_config *cfg,
                         struct step_options *opt,
                         struct contract *ret,
                         struct err *err)
{
    struct err place_err = ERR_INIT;
    if (!err->code)
        (void)site_apply(cfg, slurm_io_getenv, sp, opt, err); /* err is read below */
    bool has_place = task_read_place(sp, node, opt, ret, &place_err) == 0;
    if (!err->code && !has_place)
        *err = place_err;
    if (!err->code)
        (void)task_set_environment(sp, node, ret, cfg, opt, err); /* as above */
    int argc = 0;
    char **argv = slurm_io_argv(sp, &argc);
    if (!err->code && argv)
        (void)guard_take(argv[0], err);
    if (!err->code && ret->place.local_rank == 0)
        (void)first_task_check(sp, cfg, ret, err);
    return has_place;
}

/* Step 6, with the error of this task or none. */
static int task_pass_gate(struct spank_handle *sp,
                          const struct node_side *node,
                          const struct contract *c,
                          uint64_t wait_ms,
                          struct err *err)
{
    struct err gate_err = ERR_INIT;
    bool is_open = false;
    /* proctrack/linuxproc spares processes with the name of slurmstepd, and so would
     * not end a task that waits here; exec replaces the name */
    (void)prctl(PR_SET_NAME, "hvd-gate");
    if (gate_pass(&node->ticket, c, err->code ? err->text : NULL, wait_ms, &is_open,
                  &gate_err)) {
        if (err->code)
            return err->code;
        *err = gate_err;
        add_node_name(sp, err);
        return err->code;
    }
    if (!is_open) { /* srun prints why */
        *err = (struct err){.code = -ECANCELED};
        return -ECANCELED;
    }
    return 0;
}

int task_start(struct spank_handle *sp,
               const struct node_side *node,
               const struct plugin_config *cfg,
               const struct step_options *opt,
               struct err *err)
{
    struct step_options own = *opt;
    struct contract c;
    int files[2] = {-1, -1};
    bool has_place = task_prepare(sp, node, cfg, &own, &c, err);
    const char *output = step_options_get(&own, OWN_OUTPUT);
    if (!err->code && output)
        (void)output_open(output, c.place.rank, c.place.size, files,
                          err); /* as above */
    if (err->code)
        add_node_name(sp, err);
    if (!has_place || !node->has_ticket)
        return err->code;
    node_side_note_task(node, sp, &c);
    int rc = task_pass_gate(sp, node, &c, step_options_start_ms(&own), err);
    if (!rc && output)
        rc = output_use(files, err);
    if (!rc)
        node_side_note_start(node);
    return rc;
}
