/* SPDX-License-Identifier: Apache-2.0 */
/* A task's place in a Slurm step, from the variables that Slurm itself sets. For bare
 * srun (from_slurm.c) and for the Slurm plugin. Pure. */
#ifndef RUNTIME_CONTRACT_SLURM_STEP_H
#define RUNTIME_CONTRACT_SLURM_STEP_H

#include "runtime/contract/env_reader.h"
#include "runtime/contract/hostlist.h"

/* The nodes of the step in Slurm's order, slots: how many tasks each has. -EINVAL. */
int slurm_step_hosts(const struct env_reader *r, struct hostlist *ret);

struct slurm_step {
    struct hostlist hosts;
    struct place place; /* the rank is Slurm's, whatever the distribution */
};
/* -EINVAL with an error message when a variable is missing or two contradict each
 * other; ret must be released in any case and may start zeroed. */
int slurm_step_read(const struct env_reader *r, struct slurm_step *ret);
void slurm_step_release(struct slurm_step *s);

/* Whether Slurm sets this "NAME=value" of an environment for a job or a step, or reads it
 * as an option of one or of squeue: SQUEUE_PARTITION would hide a job. False for
 * SLURM_CONF. */
bool slurm_step_owns(const char *variable);

#endif
