/* SPDX-License-Identifier: Apache-2.0 */
/* The first failure of a job, as one line that people and programs both read. The agent
 * writes it as the first line of the termination message of every worker, followed by
 * the last lines of the failing rank's output; the operator parses it; horovodrun
 * prints it. Pure.
 *
 *   ringmaster-failure/1 rank=1 host=demo-worker-1 exit=3 signal=0
 *   at=1790000000123456 why="..."                                    (one line)
 *
 * at: wall clock in microseconds when the failure was detected on its own host. rank
 * -1: no rank but the agent itself (a missing command, a start timeout). exit=0 signal=0:
 * it has not ended as far as is known, but other ranks lost it. */
#ifndef RUNTIME_CONTRACT_FAILURE_H
#define RUNTIME_CONTRACT_FAILURE_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"
#include "runtime/contract/hostlist.h"

#define FAILURE_OTHER_RANK 6 /* exit code of a rank: another one failed first (hvd.h) */
#define FAILURE_LATE       124 /* exit code with rank -1: the agents did not meet in time */
/* exit code of hvd-agent serve: no process works on this host (EX_TEMPFAIL of
 * sysexits.h) */
#define FAILURE_RETIRED    75

struct failure {
    int32_t rank;
    char host[HOST_NAME_MAX_BYTES];
    int exit_code; /* 0 when killed by a signal */
    int signal;    /* 0 when it exited */
    uint64_t at_wall_us;
    char why[240]; /* one line, no control characters; "" allowed */
};
void failure_render(const struct failure *f, struct strbuf *out); /* with newline */
/* Parses the first line of text only. -ENOENT: it is not a failure line; -EINVAL: it is
 * malformed. */
int failure_parse(const char *text, struct failure *ret, struct err *err);
/* "rank 1 on demo-worker-1 exited with code 3" / "... was killed by signal 9
 * (SIGKILL)" / "... was lost". */
void failure_sentence(const struct failure *f, char *ret, size_t size_bytes);
const char *signal_name(int sig); /* "SIGKILL"; "real-time signal"; "unknown signal" */
int signal_number(const char *name, size_t n); /* of "SIGKILL"; 0: unknown */

#endif
