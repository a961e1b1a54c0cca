/* SPDX-License-Identifier: Apache-2.0 */
/* Selects the first failure of a job. Pure; the caller passes the time. */
#ifndef RUNTIME_LAUNCH_CORE_VERDICT_H
#define RUNTIME_LAUNCH_CORE_VERDICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/contract/failure.h"

#define MESSAGE_MAX_BYTES   4096 /* limit of a pod's termination message */
#define TAIL_MAX_BYTES      3072
#define VERDICT_MAX_REPORTS 256
/* a consequence may arrive this much earlier than its cause */
#define VERDICT_WINDOW_MS   300
#define VERDICT_BLAME_MS    2000 /* time for a rank that others name as lost to exit */

struct report {
    struct failure f;
    uint32_t first_rank, n_ranks; /* the ranks concerned; n_ranks 0: none */
    int32_t blames;               /* the rank that it names as lost; -1: none */
    char tail[TAIL_MAX_BYTES];    /* last lines, complete, each with a newline */
};

/* A failure of no rank: of a host, an agent or the job. f.why, blames and the ranks
 * concerned are empty. */
void report_init(struct report *ret, const char *host, int exit_code, uint64_t wall_us);

struct launch_verdict {
    struct report *v;
    size_t n, cap;
    uint64_t first_ns;
    /* of the rank that the first such report names as lost or failed; n_ranks 0: none */
    struct report lost;
};

void verdict_init(struct launch_verdict *v);
void verdict_release(struct launch_verdict *v);
/* Adds a report, in order of arrival. Reports beyond the bound are dropped (0): they
 * are consequences. A report about another rank's GPU becomes f.why of that rank's
 * report, if it has none. */
int verdict_add(struct launch_verdict *v, const struct report *r, uint64_t now_ns);
/* The time of the decision; UINT64_MAX without reports. Further reports may change
 * it. */
uint64_t verdict_deadline_ns(const struct launch_verdict *v);
/* The report of the cause; NULL without reports. If only ranks have reported that lost a
 * peer, which has not ended itself (it hangs, also at its exit, or its host is cut off),
 * it is about that peer. */
const struct report *verdict_pick(const struct launch_verdict *v);

/* Finds the rank that a rank's last lines name as lost, in the runtime's error
 * messages: "lost rank 3", "rank 3 (host b, pid 7) was lost", "ended: ValueError" or
 * "called shutdown()",
 * "rank 3 on b exited with code 3" or "was killed by signal 9"; -1: none. A rank does
 * not blame itself. */
int32_t blame_scan(const char *tail, int32_t self);
/* The launcher's exit code: the rank's code, 128 + signal, or 125 for our own failures.
 * Never 0. */
int failure_exit_code(const struct failure *f);
/* The message for users: failure_sentence and why, or only why if no rank failed. */
void report_sentence(const struct report *r, char *ret, size_t size_bytes);
/* Sets blames from the tail, and f.why if a GPU was the cause (gpu_cause.h). */
void report_explain(struct report *r);
/* Appends the failure line and the tail: at most MESSAGE_MAX_BYTES, without the oldest
 * lines. */
void report_message(const struct report *r, struct strbuf *out);

#endif
