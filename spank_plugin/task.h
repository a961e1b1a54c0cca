/* SPDX-License-Identifier: Apache-2.0 */
/* One task, after fork and before exec, as the user: sets its launch contract. */
#ifndef SPANK_PLUGIN_TASK_H
#define SPANK_PLUGIN_TASK_H

#include "spank_plugin/node.h"
#include "spank_plugin/options.h"

int task_setup(struct spank_handle *sp,
               const struct node_side *node,
               const struct plugin_config *cfg,
               const struct step_options *opt,
               struct err *err);
/* True for the one task of a node that reports the node's error. */
bool task_is_reporter(struct spank_handle *sp);

#endif
