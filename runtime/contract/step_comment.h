/* SPDX-License-Identifier: Apache-2.0 */
/* What a Slurm step has put into the comment of its job:
 *
 *   [the user's own text " | "] "hvd " JOB "." STEP ": " LINE
 *
 * spank_hvd.so writes it from srun; hvd-status reads it once the job has ended. Pure. */
#ifndef RUNTIME_CONTRACT_STEP_COMMENT_H
#define RUNTIME_CONTRACT_STEP_COMMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/strbuf.h"
#include "runtime/contract/failure.h"

#define STEP_COMMENT_MAX    1024       /* with NUL: Slurm's limit at submission */
#define STEP_COMMENT_FAILED "Failed: " /* how the line of a failure begins */

/* squeue -h --states=all -j JOB -o STEP_COMMENT_FORMAT */
#define STEP_COMMENT_FORMAT "%A|%i|%T|%r|%k"
struct job_record {
    uint32_t job;
    char word[48]; /* what scontrol takes for this one: "12", "12_3", "12+0" */
    char state[32], reason[64];
    const char *comment; /* in text; "": none */
};
/* The row of a job; with job 0 the first one, of a heterogeneous job that of its first
 * component, which has the comment. text is changed. A heterogeneous job and an array have
 * several rows. -ENOENT: there is none; -EINVAL: malformed, or a comment of
 * several lines, whose end cannot be seen. */
int job_record_read(char *text, uint32_t job, struct job_record *ret);

/* The job that has the comment: of a heterogeneous job its first component. */
uint32_t job_record_lead(const struct job_record *r);

struct step_comment {
    uint32_t job, step;
    const char *line; /* in the text */
};
/* Of a job's comment, which anybody may have written. False: it has no line of ours. */
bool step_comment_read(const char *comment, struct step_comment *ret);
/* Appends the comment with a new line of ours in place of an earlier one. The user's
 * text stays as it is. Control characters in line become '?'; a line that does not fit
 * is cut. -E2BIG: the user's text leaves no room. */
int step_comment_put(const char *comment,
                     uint32_t job,
                     uint32_t step,
                     const char *line,
                     struct strbuf *out);
/* Of a line that begins with STEP_COMMENT_FAILED: rank, host, exit code, signal and
 * why. False: it is another line, or names no rank (f->rank -1; f->why has the text). */
bool step_comment_failure(const char *line, struct failure *ret);

#endif
