/* SPDX-License-Identifier: Apache-2.0 */
/* The plugin's arguments in plugstack.conf: where the runtime is, and the site's rules
 * for the keys of --hvd and the variables behind them. Pure.
 *
 *   default=ITEMS   used where neither --hvd nor the environment has a value
 *   force=ITEMS     always used; another value is refused
 *   max=ITEMS, min=ITEMS   bounds of numbers
 *   allow=KEY,...   users may give no other keys
 *   deny=KEY,...    users may not give these
 *
 * ITEMS are as in --hvd. srun, sbatch and salloc apply the rules before anything
 * starts, and each task applies those of its own node again, to its own environment. */
#ifndef SPANK_PLUGIN_SITE_H
#define SPANK_PLUGIN_SITE_H

#include "runtime/contract/contract.h"
#include "spank_plugin/options.h"

/* The administrator's options for all steps. */
struct plugin_config {
    char dir[512]; /* the installed runtime: python/ and bin/ are put before the user's
                      paths */
    bool dir_required; /* named in plugstack.conf: it must exist */
    char run_dir[256]; /* contains a directory per step, on each node */
    struct step_options defaults, forced, max, min;
    bool has_allow, has_deny;
    bool is_listed[SETTING_COUNT]; /* in allow or deny */
};
/* -EINVAL with an error message that names the argument. */
int plugin_config_parse(int argc,
                        char *const *argv,
                        struct plugin_config *ret,
                        struct err *err);

/* Checks the settings of a step, and the runtime's variables in an environment, and
 * adds what the site sets. Applying it twice changes nothing. -EPERM with an error
 * message that names the key, the value and the rule. */
int site_apply(const struct plugin_config *c,
               getenv_fn get,
               void *arg,
               struct step_options *o,
               struct err *err);
/* The rules, for --hvd=help. */
void site_help(const struct plugin_config *c, struct strbuf *out);

#endif
