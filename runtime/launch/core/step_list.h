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

#define STEP_JOB_FORMAT  "%A|%U|%T|%i|%u" /* squeue -o, of a job */
#define STEP_STEP_FORMAT "%i|%A|%j|%N"    /* of steps; a name may have '|' */
#define STEP_PARTS_MAX   128              /* Slurm's limit */

/* What the user has typed: JOB[.STEP], JOB as 12, 12_3 (of an array) or 12+1 (a component
 * of a heterogeneous job, of which all are asked: job is 12). */
struct step_word {
    char job[48];
    bool has_step;
    uint32_t step;
};
int step_word_parse(const char *word, struct step_word *ret, struct err *err);

/* The components of a job: one, or those of a heterogeneous job, which Slurm counts as jobs. */
struct step_job {
    uint32_t lead; /* the job; of a heterogeneous one its first component */
    bool is_het;
    uint32_t n, parts[STEP_PARTS_MAX]; /* [n] jobs, by component */
    bool has_all; /* else ask squeue for the lead, for which it lists all components */
};
/* text: of squeue -o STEP_JOB_FORMAT. -ENOENT: no such job; -ESRCH: it does not run;
 * -EACCES: of another user, for whom Slurm refuses a step, root included. Each with a sentence. */
int step_list_job(const char *text,
                  const struct step_word *w,
                  uid_t uid,
                  struct step_job *ret,
                  struct err *err);

struct step_component { /* of a step */
    uint32_t job, index, n_tasks;
    const char *nodes; /* in text */
    size_t nodes_len;
};
struct step_found {
    uint32_t step, n_tasks; /* of all components */
    uint32_t n_parts;       /* a step may run in some of a job's components only */
    struct step_component parts[STEP_PARTS_MAX];
};
/* text: of squeue -s -o STEP_STEP_FORMAT, for all parts of the job. The wanted step, or the
 * only one of the job; its components have the same number. */
int step_list_choose(const char *text,
                     const struct step_word *w,
                     const struct step_job *job,
                     struct step_found *ret,
                     struct err *err);

#endif
