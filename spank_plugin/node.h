/* SPDX-License-Identifier: Apache-2.0 */
/* The node's part of a step, in slurmstepd: the directory with its token and
 * hostfile. */
#ifndef SPANK_PLUGIN_NODE_H
#define SPANK_PLUGIN_NODE_H

#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/contract/contract.h"
#include "spank_plugin/slurm_io.h"

struct node_side {
    char base[256], name[64];
    char token_file[CONTRACT_PATH_MAX], hostfile[CONTRACT_PATH_MAX];
    uint16_t rdv_port, master_port;
    bool has_dir;
};
/* init_post_opt, as root: creates BASE (0755) and BASE/JOB.STEP.NODE (0700, owned by
 * the user), after removing a directory of this name that a crashed step left. -EPERM
 * when users other than root may write to BASE. */
int node_side_make_dir(struct node_side *n,
                       const char *base,
                       const struct plugin_step *step,
                       struct err *err);
/* user_init, as the user: opens the ticket, writes token and hostfile. */
int node_side_fill(struct node_side *n, struct spank_handle *sp, struct err *err);
/* exit, as root: removes the directory. Accepts any state. */
void node_side_release(struct node_side *n);

#endif
