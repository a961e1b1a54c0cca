/* SPDX-License-Identifier: Apache-2.0 */
/* What the first task of each node checks for all of them, before it reports to the
 * gate: the GPUs, the limit of locked memory, the network interface, the Python package. */
#ifndef SPANK_PLUGIN_FIRST_TASK_H
#define SPANK_PLUGIN_FIRST_TASK_H

#include "runtime/contract/contract.h"
#include "spank_plugin/site.h"
#include "spank_plugin/slurm_io.h"

/* task_init, as the user, once the environment is complete and the program has its name.
 * An error: what srun has to say. Bounded. */
int first_task_check(struct spank_handle *sp,
                     const struct plugin_config *cfg,
                     const struct contract *c,
                     struct err *err);

#endif
