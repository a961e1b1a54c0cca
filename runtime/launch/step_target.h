/* SPDX-License-Identifier: Apache-2.0 */
/* The step of Slurm that hvd-status asks, and the srun that asks it. */
#ifndef RUNTIME_LAUNCH_STEP_TARGET_H
#define RUNTIME_LAUNCH_STEP_TARGET_H

#include "runtime/contract/hostlist.h"
#include "runtime/launch/step_srun.h"

struct step_target {
    struct step_job job;
    struct step_found found;
    struct hostlist *hosts; /* [found.n_parts], of each component */
    size_t n_tasks;         /* that are asked: one on each of these hosts */
    struct strbuf nodes;    /* all hosts, as Slurm writes it */
    struct strbuf steps;    /* squeue's answer, in which found points */
};

/* Asks squeue. -ENOENT, -EACCES, -ESRCH, -EINVAL with a sentence (core/step_list.h). */
int step_target_find(struct step_target *t,
                     struct slurm_commands *s,
                     const struct step_word *w,
                     struct err *err);
void step_target_release(struct step_target *t); /* accepts a zeroed one */

/* Starts `hvd-agent step` on each node of component i of found. */
int step_target_ask(const struct step_target *t,
                    uint32_t i,
                    struct slurm_commands *s,
                    struct slurm_srun *ret,
                    struct err *err);

#endif
