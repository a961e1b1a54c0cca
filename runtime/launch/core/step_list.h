/* SPDX-License-Identifier: Apache-2.0 */
/* Which step of a Slurm job hvd-status asks, from squeue's output. Pure. */
#ifndef RUNTIME_LAUNCH_CORE_STEP_LIST_H
#define RUNTIME_LAUNCH_CORE_STEP_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "runtime/base/err.h"

#define STEP_STATUS_NAME "hvd-status" /* of the steps that hvd-status itself starts */

#define STEP_JOB_FORMAT  "%A|%U|%T|%u" /* squeue -o, of a job */
#define STEP_STEP_FORMAT "%i|%A|%j|%N" /* of steps; a name may have '|' */
#define STEP_NODES_MAX   65536         /* bytes of a node list */

struct step_word { /* what the user has typed: JOB[.STEP], JOB as 12 or 12_3 */
    char job[48];
    bool has_step;
    uint32_t step;
};
int step_word_parse(const char *word, struct step_word *ret, struct err *err);

/* text: of squeue -o STEP_JOB_FORMAT. -ENOENT: no such job; -ESRCH: it does not run;
 * -EACCES: of another user, for whom Slurm refuses a step, root included. Each with a sentence. */
int step_list_job(const char *text,
                  const struct step_word *w,
                  uid_t uid,
                  uint32_t *ret_job,
                  struct err *err);

struct step_found {
    uint32_t job, step, n_tasks;
    const char *nodes; /* in text */
    size_t nodes_len;
};
/* text: of squeue -s -o STEP_STEP_FORMAT. The wanted step, or the only one of the job. */
int step_list_choose(const char *text,
                     const struct step_word *w,
                     uint32_t job,
                     struct step_found *ret,
                     struct err *err);

#endif
