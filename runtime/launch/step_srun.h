/* SPDX-License-Identifier: Apache-2.0 */
/* Slurm's commands, for hvd-status and hvd-slurm-check: squeue, scontrol and srun. They run
 * without the variables of a job that this program may be in. */
#ifndef RUNTIME_LAUNCH_STEP_SRUN_H
#define RUNTIME_LAUNCH_STEP_SRUN_H

#include "runtime/launch/core/step_list.h"
#include "runtime/launch/spawn.h"

#define SLURM_COMMAND_MS 20000u

struct slurm_commands {
    struct signals signals;
    char **env;
    char self[4096];          /* this program, hvd-agent */
    struct slurm_srun *sruns; /* that run; the last one first */
    int stop;                 /* a signal that came during slurm_commands_run */
};
/* -ENOENT: Slurm is not on PATH. Blocks signals: call it first. */
int slurm_commands_init(struct slurm_commands *s, struct err *err);
void slurm_commands_release(struct slurm_commands *s);

/* Runs argv[0] of PATH and appends its output. Its messages go to standard error. */
int slurm_commands_run(struct slurm_commands *s,
                       char *const *argv,
                       uint64_t timeout_ms,
                       struct strbuf *out,
                       struct err *err);

/* Reaps sruns, and returns a signal that ends this program, or 0. */
int slurm_commands_take_signals(struct slurm_commands *s);

/* An srun that runs; it stays at its address. */
struct slurm_srun {
    struct child child; /* pid 0: it has ended */
    int fd;             /* its standard input and output */
    struct slurm_srun *next;
};
int slurm_srun_start(struct slurm_commands *s,
                     char *const *argv,
                     struct slurm_srun *ret,
                     struct err *err);
/* Copies what srun prints to standard error, without control characters: nodes print
 * there too. */
void slurm_srun_take_messages(struct slurm_srun *r);
/* Closes its input, and ends it if it does not end by itself within seconds. */
void slurm_srun_end(struct slurm_srun *r, struct slurm_commands *s);

#endif
