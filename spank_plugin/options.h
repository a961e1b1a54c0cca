/* SPDX-License-Identifier: Apache-2.0 */
/* Parses --hvd[=key=value,...] and the plugin's arguments in plugstack.conf. Pure. */
#ifndef SPANK_PLUGIN_OPTIONS_H
#define SPANK_PLUGIN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/contract/tf_world.h"

#define OPTIONS_HELP                                                                   \
    "[hvd] run the tasks as one Horovod job: ranks, rendezvous and runtime are "       \
    "set up (keys: timeout=DURATION, iface=NAME, verbose, framework=NAME, ps=N, "      \
    "evaluator)"

/* The user's options of one step. */
struct step_options {
    uint64_t start_timeout_ms; /* 0: the default of the runtime */
    char iface[64];            /* "": the interface on the route to srun */
    bool is_verbose;
    struct tf_roles roles;
};
/* arg as Slurm passes it: NULL, "" and "(null)" (sbatch and salloc forward an absent
 * value so) mean no keys. -EINVAL with an error message that names the key, the value
 * and what is allowed; *ret is then unchanged. */
int step_options_parse(const char *arg, struct step_options *ret, struct err *err);

/* The administrator's options for all steps. */
struct plugin_config {
    char dir[512]; /* the installed runtime: python/ and bin/ are put before the user's
                      paths */
    bool dir_required; /* named in plugstack.conf: it must exist */
    char run_dir[256]; /* contains a directory per step, on each node */
};
int plugin_config_parse(int argc,
                        char *const *argv,
                        struct plugin_config *ret,
                        struct err *err);

#endif
