/* SPDX-License-Identifier: Apache-2.0 */
/* spank_hvd.so: `srun --hvd python train.py`. This file only dispatches Slurm's
 * callbacks by context.
 *
 *   process           callback         work
 *   srun              init             register --hvd
 *                     init_post_opt    srun.c: bind two ports, seal the ticket
 *                     local_user_init  srun.c: guard the command, serve
 *                     exit             srun.c: stop
 *   sbatch, salloc    init             register --hvd (Slurm forwards it to every srun
 *                                      of the job)
 *   slurmstepd, root  init_post_opt    node.c: the step's directory
 *               user  user_init        node.c: ticket, token and hostfile
 *               user  task_init        task.c: environment and gate, once per task
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

/* Slurm looks the callbacks up by name: all other symbols are hidden */
#pragma GCC visibility push(default)
#include <slurm/spank.h>

SPANK_PLUGIN(hvd, 1)
#pragma GCC visibility pop

#include "spank_plugin/node.h"
#include "spank_plugin/options.h"
#include "spank_plugin/slurm_io.h"
#include "spank_plugin/srun.h"
#include "spank_plugin/task.h"

static struct plugin {
    bool is_on; /* --hvd was given */
    struct step_options opt;
    struct plugin_config cfg;
    struct err cfg_err;
    struct srun_side srun;
    struct node_side node;
    struct err node_err;
} plugin = {.srun = SRUN_SIDE_INIT, .node = NODE_SIDE_INIT}; /* exit may be called
                                                                  without init */

/* Runs once in srun and twice in slurmstepd (once from Slurm 24.05). */
static int on_option(int val, const char *arg, int remote)
{
    struct err err = ERR_INIT;
    (void)val;
    plugin.is_on = true;
    if (step_options_parse(arg, &plugin.opt, &err) == 0)
        return 0;
    if (remote)
        plugin.node_err = err;
    else
        slurm_io_error("%s", err.text);
    return -1;
}

/* Slurm's struct has no const; it copies the texts when the option is registered */
static char option_name[] = "hvd", option_arg[] = "[KEY=VALUE,...]",
            option_help[] = OPTIONS_HELP;
static struct spank_option option = {
    .name = option_name,
    .arginfo = option_arg,
    .usage = option_help,
    .has_arg = 2, /* optional */
    .cb = on_option,
};

int slurm_spank_init(spank_t sp, int argc, char *argv[])
{
    switch (spank_context()) {
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
    return 0;
}

static void srun_fail(const struct err *err)
{
    slurm_io_error("%s", err->text);
    slurm_io_end_srun();
}

static void srun_post_opt(void)
{
    struct err err = ERR_INIT;
    if (plugin.cfg_err.code)
        srun_fail(&plugin.cfg_err);
    plugin.srun.is_verbose = plugin.opt.is_verbose;
    if (srun_side_prepare(&plugin.srun, &err))
        srun_fail(&err);
    slurm_io_kill_on_bad_exit();
}

static void node_post_opt(spank_t sp)
{
    struct plugin_step step;
    struct err err = plugin.cfg_err;
    int rc = slurm_io_step(sp, &step, &err);
    if (!rc && !slurm_io_runs_tasks(&step)) {
        plugin.is_on = false;
        return;
    }
    if (!err.code && !plugin.node_err.code)
        (void)node_side_make_dir(&plugin.node, plugin.cfg.run_dir, &step, &err);
    if (!plugin.node_err.code)
        plugin.node_err = err;
}

int slurm_spank_init_post_opt(spank_t sp, int argc, char *argv[])
{
    (void)argc;
    (void)argv;
    if (!plugin.is_on)
        return 0;
    if (spank_context() == S_CTX_LOCAL)
        srun_post_opt();
    if (spank_context() == S_CTX_REMOTE)
        node_post_opt(sp);
    return 0;
}

int slurm_spank_local_user_init(spank_t sp, int argc, char *argv[])
{
    struct err err = ERR_INIT;
    (void)argc;
    (void)argv;
    if (plugin.is_on && srun_side_serve(&plugin.srun, sp, &err))
        srun_fail(&err);
    return 0;
}

int slurm_spank_user_init(spank_t sp, int argc, char *argv[])
{
    struct err err = ERR_INIT;
    (void)argc;
    (void)argv;
    if (!plugin.is_on)
        return 0;
    /* even on a node that has failed: it reports that under the token */
    int rc = node_side_open_ticket(&plugin.node, sp, &err);
    if (!rc && !plugin.node_err.code)
        (void)node_side_fill(&plugin.node, sp, &err); /* err is read below */
    if (!plugin.node_err.code)
        plugin.node_err = err;
    return 0;
}

int slurm_spank_task_init(spank_t sp, int argc, char *argv[])
{
    struct err err = plugin.node_err;
    (void)argc;
    (void)argv;
    if (!plugin.is_on
        || task_start(sp, &plugin.node, &plugin.cfg, &plugin.opt, &err) == 0)
        return 0;
    if (err.text[0])
        slurm_io_error("%s", err.text);
    slurm_io_end_task();
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
