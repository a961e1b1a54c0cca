/* SPDX-License-Identifier: Apache-2.0 */
/* Examines ranks of this host that hang: what each one does instead, with its stacks.
 * It works in a thread of its own, since it reads files of programs, which may lie on a
 * file system that hangs; the thread starts no process. It takes about 2 s, at most 6. */
#ifndef RUNTIME_LAUNCH_EXAMINE_H
#define RUNTIME_LAUNCH_EXAMINE_H

#include "runtime/launch/core/hang.h"

struct examined_process {
    uint32_t rank, pid, generation;
    char gpu[128]; /* hang_gpu_put */
};

/* The ranks that have a page in stats_dir, by rank. The caller frees *ret with mem_free.
 * 0, -ENOMEM. */
int examine_list(const char *stats_dir, struct examined_process **ret, size_t *ret_n);

/* Rank 0's record; false: no stall is reported there. */
bool examine_read_stall(const char *stats_dir, struct stall_record *ret);

struct examination;
/* Starts. only_ours: a process that is not a descendant of this one is left alone. */
int examination_start(const struct examined_process *v,
                      size_t n,
                      const char *stats_dir,
                      bool only_ours,
                      struct examination **ret,
                      struct err *err);
/* Readable when it is done. */
int examination_fd(const struct examination *e);
bool examination_is_done(const struct examination *e);
/* When it is done: one for each process, in their order; valid until examination_free. */
const struct hang_finding *const *examination_findings(const struct examination *e,
                                                       size_t *ret_n);
/* Accepts NULL. Before it is done the thread is left to itself and frees everything. */
void examination_free(struct examination *e);

/* hvd-agent examine: DIR or PID ...; the exit code. */
int examine_command(char **words);

#endif
