/* SPDX-License-Identifier: Apache-2.0 */
/* All access to Slurm, in our own types: items and environment of a step, its
 * configuration, messages to the user. Only slurm_io.c and plugin.c include Slurm's
 * headers. */
#ifndef SPANK_PLUGIN_SLURM_IO_H
#define SPANK_PLUGIN_SLURM_IO_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "runtime/base/err.h"

struct spank_handle; /* Slurm's spank_t is a pointer to it */

struct plugin_step {
    uint32_t job_id, step_id;
    uint32_t node_id; /* of this component of the step; srun: 0 */
    uint32_t n_tasks; /* of this component of the step */
    uid_t uid;
    gid_t gid;
};
/* In srun (local_user_init) and slurmstepd. -ENOENT with an error message when Slurm
 * has no such item. */
int slurm_io_step(struct spank_handle *sp, struct plugin_step *ret, struct err *err);
/* False for the batch script, the external step and an interactive shell, which run no
 * tasks of a job. */
bool slurm_io_runs_tasks(const struct plugin_step *s);

/* The step's environment in slurmstepd. A getenv_fn of the contract; arg is the handle.
 * The value is valid until the next change of the environment. */
const char *slurm_io_getenv(void *sp, const char *name);
/* NULL-terminated NAME=VALUE list, valid until the next change; NULL when there is
 * none. */
char **slurm_io_environ(struct spank_handle *sp);
int slurm_io_setenv(struct spank_handle *sp,
                    const char *name,
                    const char *value,
                    struct err *err);
void slurm_io_unsetenv(struct spank_handle *sp, const char *name);

/* The step's command in srun (local_user_init) and slurmstepd: Slurm's own array, whose
 * *ret_n elements may be replaced; no NULL follows them in srun's heterogeneous steps.
 * NULL when there is none. */
char **slurm_io_argv(struct spank_handle *sp, int *ret_n);

/* sbatch and salloc, in init_post_opt: every srun of the job gets the value as that of
 * --hvd, whatever --export says. */
int slurm_io_forward(struct spank_handle *sp, const char *value, struct err *err);
/* The name of this program: "srun", "sbatch", "salloc". */
const char *slurm_io_program(void);
/* The command of this program's own command line if it follows a bare --hvd, in ret;
 * otherwise "". */
void slurm_io_next_word(char *ret, size_t size_bytes);

/* In task_exit: how the task has ended, as from wait. False: Slurm does not provide it. */
bool slurm_io_exit_status(struct spank_handle *sp, int *ret);
/* In task_init and task_exit: Slurm's number of the task on this node; in user_init: how
 * many there are. False: Slurm does not provide it. */
bool slurm_io_local_task(struct spank_handle *sp, uint32_t *ret);
bool slurm_io_local_tasks(struct spank_handle *sp, uint32_t *ret);

/* From slurm.conf; NULL or 0 when not set there. */
const char *slurm_io_auth_info(void); /* AuthInfo=socket=... */
const uint16_t *
slurm_io_ports(void); /* SrunPortRange: first and last port; NULL: any */
/* srun only: the effect of --kill-on-bad-exit, as if KillOnBadExit=1 were in
 * slurm.conf; the user's own --kill-on-bad-exit=0 or SLURM_KILL_BAD_EXIT=0 still has
 * priority. */
void slurm_io_kill_on_bad_exit(void);

/* Ends srun (sbatch, salloc). Slurm ignores a failed callback when plugstack.conf says `optional`. */
void slurm_io_end_srun(void) __attribute__((noreturn));
/* Prints on standard output and ends srun (sbatch, salloc) with code 0. */
void slurm_io_end_with(const char *text) __attribute__((noreturn));
/* Ends a task before its program starts (task_init). */
void slurm_io_end_task(void) __attribute__((noreturn));

/* Prints one line on the user's terminal, prefixed with "hvd: "; from srun, sbatch,
 * salloc and, from user_init on, from the nodes. */
void slurm_io_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void slurm_io_print(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
