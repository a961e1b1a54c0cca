/* SPDX-License-Identifier: Apache-2.0 */
/* spank_hvd.so: `srun --hvd python train.py`. This file only dispatches Slurm's
 * callbacks by context.
 *
 *   process           callback         work
 *   srun              init             register --hvd, read SLURM_HVD
 *                     init_post_opt    the site's rules; srun.c: bind its ports, seal
 *                                      the ticket
 *                     local_user_init  srun.c: guard the command, serve
 *                     exit             srun.c: stop
 *   sbatch, salloc    init             register --hvd, read SBATCH_HVD or SALLOC_HVD
 *                     init_post_opt    the site's rules; the value goes to every srun
 *                                      of the job
 *   slurmstepd, root  init_post_opt    node.c: the step's directory
 *               user  user_init        node.c: ticket, token and hostfile
 *               user  task_init        task.c: environment and gate, once per task
 *               root  task_exit        node.c: report a failed task to srun;
 *                                      report a missing runtime
 *               root  exit             node.c: remove the directory
 *   slurmd, prolog,   -                nothing
 *   epilog
 *
 * Invariants: without --hvd nothing happens after init. With it, no task runs unless
 * all nodes are set up, whatever plugstack.conf says: Slurm ignores the return value of
 * an `optional` plugin, so failures end srun or the task here. An error on a node is
 * kept in node_err until task_init, the one callback whose output Slurm shows to the
 * user. The struct below is the plugin's one mutable global; Slurm calls from one
 * thread per process. */
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* Slurm looks the callbacks up by name: all other symbols are hidden */
#pragma GCC visibility push(default)
#include <slurm/spank.h>

SPANK_PLUGIN(hvd, 1)
#pragma GCC visibility pop

#include "runtime/base/mem.h"
#include "spank_plugin/node.h"
#include "spank_plugin/options.h"
#include "spank_plugin/runtime_dir.h"
#include "spank_plugin/site.h"
#include "spank_plugin/slurm_io.h"
#include "spank_plugin/srun.h"
#include "spank_plugin/task.h"

#define MAX_HELP_BYTES 65536

/* For hvd-slurm-check, which reads it in the file (runtime/launch/core/node_facts.h). */
#define AS_TEXT(x)     #x
#define VALUE_OF(x)    AS_TEXT(x)
static const char version_mark[] __attribute__((used)) =
    "@(#)spank_hvd " HVD_VERSION_STRING " " VALUE_OF(SLURM_VERSION_NUMBER);

static struct plugin {
    bool has_option; /* on a node: Slurm passed --hvd, and not "off" */
    struct step_options opt;
    struct plugin_config cfg;
    struct err cfg_err;
    struct srun_side srun;
    struct node_side node;
    struct err node_err;
    bool has_reported;                                       /* the missing runtime */
} plugin = {.srun = SRUN_SIDE_INIT, .node = NODE_SIDE_INIT}; /* exit may be called
                                                                  without init */

static void end_srun_with_help(void)
{
    struct strbuf text;
    strbuf_init(&text, MAX_HELP_BYTES);
    step_keys_help(&text);
    strbuf_puts(&text, "\nThis site (plugstack.conf):\n");
    if (plugin.cfg_err.code)
        strbuf_printf(&text, "  %s\n", plugin.cfg_err.text);
    else
        site_help(&plugin.cfg, &text);
    slurm_io_end_with(strbuf_str(&text));
}

/* In srun once for the job's --hvd and once for each of srun's own. In slurmstepd
 * twice (once from Slurm 24.05) with the last one only: the settings are in KEYS_ENV. */
static int on_option(int val, const char *arg, int remote)
{
    struct err err = ERR_INIT;
    (void)val;
    if (remote) {
        plugin.has_option = !arg || strcmp(arg, "off") != 0;
        return 0;
    }
    if (step_options_add(&plugin.opt, "--hvd", arg, &err)) {
        slurm_io_error("%s", err.text);
        return -1;
    }
    if (plugin.opt.wants_help)
        end_srun_with_help();
    return 0;
}

/* Slurm's struct has no const; it copies the texts when the option is registered */
static char option_name[] = "hvd", option_arg[] = "[KEY=VALUE,...]",
            option_help[] = "[hvd] run the tasks as one Horovod job: ranks, rendezvous "
                            "and runtime are set up (--hvd=help prints the keys)";
static struct spank_option option = {
    .name = option_name,
    .arginfo = option_arg,
    .usage = option_help,
    .has_arg = 2, /* optional */
    .cb = on_option,
};

static void srun_fail(const struct err *err)
{
    slurm_io_error("%s", err->text);
    slurm_io_end_srun();
}

static const char *own_env(void *arg, const char *name)
{
    (void)arg;
    return getenv(name);
}

/* Less priority than each --hvd, so it comes first. */
static void read_environment(void)
{
    static const char *const names[][2] = {
        {"srun", "SLURM_HVD"}, {"sbatch", "SBATCH_HVD"}, {"salloc", "SALLOC_HVD"}};
    struct err err = ERR_INIT;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const char *value = getenv(names[i][1]);
        if (strcmp(slurm_io_program(), names[i][0]) != 0 || !value)
            continue;
        if (step_options_add(&plugin.opt, names[i][1], value, &err))
            srun_fail(&err);
        if (plugin.opt.wants_help)
            end_srun_with_help();
    }
}

int slurm_spank_init(spank_t sp, int argc, char *argv[])
{
    spank_context_t context = spank_context();
    switch (context) {
    case S_CTX_LOCAL:
    case S_CTX_ALLOCATOR:
    case S_CTX_REMOTE:
        break;
    case S_CTX_ERROR:
    case S_CTX_SLURMD:
    case S_CTX_JOB_SCRIPT:
        return 0;
    }
    plugin = (struct plugin){.srun = SRUN_SIDE_INIT, .node = NODE_SIDE_INIT};
    spank_err_t rc = spank_option_register(sp, &option);
    if (rc != ESPANK_SUCCESS) {
        slurm_io_error("cannot register --hvd: %s", spank_strerror(rc));
        return -1;
    }
    /* A mistake in plugstack.conf must not break steps without --hvd: it is reported
     * later. */
    (void)plugin_config_parse(argc, argv, &plugin.cfg, &plugin.cfg_err);
    if (context != S_CTX_REMOTE)
        read_environment();
    return 0;
}

/* The settings that srun itself uses; the nodes get the user's, and apply their own
 * rules. */
static void apply_rules(struct step_options *ret)
{
    struct err err = ERR_INIT;
    *ret = plugin.opt;
    if (plugin.cfg_err.code)
        srun_fail(&plugin.cfg_err);
    if (site_apply(&plugin.cfg, own_env, NULL, ret, &err)
        || step_options_check(ret, &err))
        srun_fail(&err);
}

static void srun_post_opt(void)
{
    struct err err = ERR_INIT;
    struct step_options step;
    if (!plugin.opt.is_on) { /* an outer step's */
        srun_side_clear();
        return;
    }
    apply_rules(&step);
    plugin.srun.is_verbose = step_options_is_on(&step, OWN_VERBOSE);
    plugin.srun.mode = step_options_comment(&step);
    if (srun_side_check_command(&err)
        || srun_side_prepare(&plugin.srun, &plugin.opt, &err))
        srun_fail(&err);
    slurm_io_kill_on_bad_exit();
}

/* Slurm forwards the last --hvd only, and none of SBATCH_HVD. */
static void allocator_post_opt(spank_t sp)
{
    CLEANUP(strbuf_release) struct strbuf value = {0};
    struct err err = ERR_INIT;
    struct step_options step;
    if (!plugin.opt.is_on)
        return;
    apply_rules(&step);
    strbuf_init(&value, 4 * STEP_MAX_BYTES);
    step_options_render(&plugin.opt, &value);
    if (strbuf_status(&value) || slurm_io_forward(sp, strbuf_str(&value), &err)
        || srun_side_check_munge(&err))
        srun_fail(&err);
}

static void node_post_opt(spank_t sp)
{
    struct plugin_step step;
    struct err err = plugin.cfg_err;
    const char *keys = slurm_io_getenv(sp, KEYS_ENV);
    if (!plugin.has_option && !keys)
        return;
    int rc = slurm_io_step(sp, &step, &err);
    if (!rc && !slurm_io_runs_tasks(&step))
        return;
    if (!err.code)
        (void)step_options_add(&plugin.opt, "--hvd", keys,
                               &err); /* err is read below */
    plugin.opt.is_on = true;
    if (!err.code)
        (void)node_side_make_dir(&plugin.node, plugin.cfg.run_dir, &step, &err);
    plugin.node_err = err;
}

int slurm_spank_init_post_opt(spank_t sp, int argc, char *argv[])
{
    (void)argc;
    (void)argv;
    if (spank_context() == S_CTX_LOCAL)
        srun_post_opt();
    if (spank_context() == S_CTX_ALLOCATOR)
        allocator_post_opt(sp);
    if (spank_context() == S_CTX_REMOTE)
        node_post_opt(sp);
    return 0;
}

int slurm_spank_local_user_init(spank_t sp, int argc, char *argv[])
{
    struct err err = ERR_INIT;
    (void)argc;
    (void)argv;
    if (plugin.opt.is_on && srun_side_serve(&plugin.srun, sp, plugin.cfg.dir, &err))
        srun_fail(&err);
    return 0;
}

int slurm_spank_user_init(spank_t sp, int argc, char *argv[])
{
    struct err err = ERR_INIT;
    (void)argc;
    (void)argv;
    if (!plugin.opt.is_on)
        return 0;
    /* even on a node that has failed: it reports that under the token */
    int rc = node_side_open_ticket(&plugin.node, sp, &err);
    if (!rc && !plugin.node_err.code)
        rc = node_side_fill(&plugin.node, sp, &err);
    if (!rc && !plugin.node_err.code)
        (void)node_side_offer_mounts(sp, &plugin.cfg, &err); /* err is read below */
    if (!plugin.node_err.code)
        plugin.node_err = err;
    return 0;
}

int slurm_spank_task_init(spank_t sp, int argc, char *argv[])
{
    struct err err = plugin.node_err;
    (void)argc;
    (void)argv;
    if (!plugin.opt.is_on
        || task_start(sp, &plugin.node, &plugin.cfg, &plugin.opt, &err) == 0)
        return 0;
    if (err.text[0])
        slurm_io_error("%s", err.text);
    slurm_io_end_task();
}

/* Once on a node, after a program has run: where Python's "No module named 'horovod'"
 * comes from. */
int slurm_spank_task_exit(spank_t sp, int argc, char *argv[])
{
    int status = 0;
    (void)argc;
    (void)argv;
    if (!plugin.opt.is_on)
        return 0;
    node_side_report_end(&plugin.node, sp);
    if (plugin.has_reported || !node_side_has_started(&plugin.node)
        || !slurm_io_exit_status(sp, &status) || !WIFEXITED(status)
        || WEXITSTATUS(status) != 1 || !runtime_dir_is_absent(&plugin.cfg))
        return 0;
    plugin.has_reported = true;
    slurm_io_error("there is no runtime in %s/python (plugstack.conf: dir), so the "
                   "program has used the package horovod of its own Python, if there "
                   "is one",
                   plugin.cfg.dir);
    return 0;
}

int slurm_spank_exit(spank_t sp, int argc, char *argv[])
{
    (void)sp;
    (void)argc;
    (void)argv;
    srun_side_release(&plugin.srun);
    node_side_release(&plugin.node);
    return 0;
}
