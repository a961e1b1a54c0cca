/* SPDX-License-Identifier: Apache-2.0 */
/* What Slurm knows of a job that has no running step: hvd-status prints it. */
#ifndef RUNTIME_LAUNCH_STEP_RECORD_H
#define RUNTIME_LAUNCH_STEP_RECORD_H

#include "runtime/launch/core/step_list.h"
#include "runtime/launch/step_srun.h"

/* Asks squeue, and prints the job's state and its first failure. False: it has printed
 * nothing, since the job is unknown or its comment says nothing about this step. */
bool step_record_print(struct slurm_commands *s,
                       const struct step_word *w,
                       bool is_json);

#endif
