/* SPDX-License-Identifier: Apache-2.0 */
/* One task, after fork and before exec, as the user: sets its launch contract and waits
 * for the other tasks of the step. */
#ifndef SPANK_PLUGIN_TASK_H
#define SPANK_PLUGIN_TASK_H

#include "spank_plugin/node.h"
#include "spank_plugin/site.h"

/* opt: the user's settings; the node's rules are applied here. err: that of the node, or
 * none. 0: the program may start. Otherwise the task must
 * end; an empty err->text means that srun prints the reason. */
int task_start(struct spank_handle *sp,
               const struct node_side *node,
               const struct plugin_config *cfg,
               const struct step_options *opt,
               struct err *err);

#endif
