/* SPDX-License-Identifier: Apache-2.0 */
/* hvd-slurm-check: what the nodes of a Slurm cluster have of what srun --hvd needs, in one
 * table with a sentence for each problem. */
#ifndef RUNTIME_LAUNCH_SLURM_CHECK_H
#define RUNTIME_LAUNCH_SLURM_CHECK_H

#define SLURM_CHECK_PROGRAM "hvd-slurm-check" /* another name of hvd-agent */

/* argv: the words behind the program's name. Returns the exit code: 0; 1: there are
 * problems; 2: usage. */
int slurm_check(char *const *argv);
/* hvd-agent facts PLUGSTACK AUTHINFO: prints one line (core/node_facts.h) about this host.
 * Standard input: a line with a munge credential of the host that asks, or an empty one. */
int agent_facts(char *const *argv);

#endif
