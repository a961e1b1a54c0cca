/* SPDX-License-Identifier: Apache-2.0 */
/* Which task of a step failed first. A node reports a failed task to srun before Slurm
 * does, over a connection of its own under the step's token; srun keeps the first, and
 * holds the nodes until it has done with it what must be done before the job ends. */
#ifndef SPANK_PLUGIN_ENDS_H
#define SPANK_PLUGIN_ENDS_H

#include "runtime/contract/contract.h"
#include "runtime/contract/failure.h"
#include "runtime/wire/accept.h"
#include "runtime/wire/frame.h"

/* --- srun; one thread --- */
#define ENDS_HELD 32 /* nodes; further ones are not held */
struct ends {
    struct token token;
    char name[JOB_ID_MAX];
    int listen_fd; /* -1: closed */
    struct acceptor acceptor;
    struct failure first;
    bool has_first,
        is_certain;    /* false: only tasks that failed because of another one */
    uint64_t first_ns; /* when it came */
    struct frame_conn held[ENDS_HELD]; /* in order of arrival */
    uint32_t n_held;
};
/* Takes over *listen_fd on success. e may not move afterwards. */
int ends_open(struct ends *e,
              int *listen_fd,
              const struct token *token,
              const char *job_id,
              struct err *err);
int ends_fd(const struct ends *e); /* -1: no report is awaited any more */
uint64_t ends_next_ns(const struct ends *e);
void ends_serve(struct ends *e); /* takes reports */
/* Ends the waiting of the nodes, in order of arrival, and takes no more reports: further
 * tasks are those that Slurm kills. Twice, too. */
void ends_close(struct ends *e);
/* False: it ended because of another one. */
bool end_is_cause(const struct failure *f);

/* --- a node --- */
/* Reports f to srun at an address; returns when srun has used it, or at the deadline.
 * -ECONNREFUSED: srun awaits none. */
int end_report(const struct token *token,
               const char *address,
               uint16_t port,
               const char *job_id,
               const struct failure *f,
               uint64_t deadline_ns,
               struct err *err);

#endif
