/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps one line about a step in the comment of its job, from a thread of srun, with the
 * rights of the user: what the step does, or its first failure. */
#ifndef SPANK_PLUGIN_COMMENT_H
#define SPANK_PLUGIN_COMMENT_H

#include "runtime/contract/token.h"
#include "spank_plugin/comment_text.h"

struct comment;
struct comment_config {
    enum comment_mode mode;
    const struct token *token;
    const char *job_id; /* of the contract */
    uint32_t job, step; /* Slurm's numbers */
    uint32_t n_tasks;
    uint64_t start_ns;     /* of the step */
    const char *dir;       /* of the runtime, which has bin/hvd-status */
    const char *slurm_dir; /* of squeue and scontrol; NULL: that of this program */
};
/* The tasks at the gate, the ranks at the rendezvous. */
typedef void (*comment_count_fn)(void *arg, uint32_t *ret_ready, uint32_t *ret_joined);
/* *listen_fd: where nodes report ends (ends.h); -1 is left there once it is taken over. */
int comment_start(int *listen_fd,
                  const struct comment_config *config,
                  struct comment **ret,
                  struct err *err);
/* Why the step was not set up; the first one counts. Any thread. */
void comment_take_sentence(struct comment *c, const char *sentence);
/* From now on the thread calls count, which may not block, until it is set to NULL; it is
 * not called after this returns with NULL. */
void comment_count_by(struct comment *c, comment_count_fn count, void *arg);
/* Writes the last line if there is one to write; COMMENT_END_S at most. Accepts NULL. */
#define COMMENT_END_S 5
void comment_end(struct comment *c);

#endif
