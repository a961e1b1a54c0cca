/* SPDX-License-Identifier: Apache-2.0 */
/* Messages are shared with forked children, because the plugin ends processes.
 *
 * Slurm's side of SPANK, as far as spank_hvd.so uses it: the test sets context, items
 * and environment, calls the callbacks and checks environment, messages and
 * configuration. Its answers were observed on Slurm 22.05 (tests/slurm runs the plugin
 * in the real one). munge is replaced by a marked plain text that records its user. */
#ifndef TESTS_FAKES_SPANK_FAKE_H
#define TESTS_FAKES_SPANK_FAKE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define FAKE_MAX_ENV 128

struct spank_handle {
    int context; /* enum spank_context */
    uint32_t job_id, step_id, node_id, n_tasks;
    bool has_items;
    int exit_status; /* of the task, in task_exit: as from wait */
    char *env[FAKE_MAX_ENV + 1];
    char *argv[2]; /* the step's command, "python" at first */
};
extern struct spank_handle fake;

void fake_reset(int context);
void fake_env(const char *name, const char *value); /* NULL removes */
const char *fake_getenv(const char *name);
/* The option as the user typed it: NULL for --hvd alone; remote as Slurm passes it.
 * Returns the callback's result. */
int fake_option(const char *arg, int remote);
bool fake_option_is_registered(void);
const char *
fake_messages(void); /* all slurm_error and slurm_spank_log lines since fake_reset */
int fake_message_count(void);
int fake_kill_on_bad_exit(void);
void fake_seal_fail(void);      /* munge is down, until fake_reset */
void fake_seal_user(uid_t uid); /* who made the next sealed text, instead of us */

#endif
