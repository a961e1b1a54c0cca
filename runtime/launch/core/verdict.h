/* SPDX-License-Identifier: Apache-2.0 */
/* Which failure was the first? Pure; time comes in. */
#ifndef RUNTIME_LAUNCH_CORE_VERDICT_H
#define RUNTIME_LAUNCH_CORE_VERDICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/contract/failure.h"

#define MESSAGE_MAX_BYTES   4096 /* a pod's termination message */
#define TAIL_MAX_BYTES      3072
#define VERDICT_MAX_REPORTS 256
#define VERDICT_WINDOW_MS   300 /* how long consequences may overtake their cause */
#define VERDICT_BLAME_MS                                                               \
    2000 /* how long a rank that others name as lost may take to end */

struct report {
    struct failure f;
    uint32_t first_rank, n_ranks; /* the ranks that it is about; n_ranks 0: none */
    int32_t blames;               /* the rank that it names as lost, -1: none */
    char tail[TAIL_MAX_BYTES];    /* last lines, whole, each with newline */
};

struct launch_verdict {
    struct report *v;
    size_t n, cap;
    uint64_t first_ns;
};

void verdict_init(struct launch_verdict *v);
void verdict_release(struct launch_verdict *v);
/* In order of arrival. Reports beyond the bound are dropped (0): they are consequences.
 * What one says of another's GPU becomes that one's f.why, if it has none. */
int verdict_add(struct launch_verdict *v, const struct report *r, uint64_t now_ns);
/* When to decide: UINT64_MAX without reports; sooner or later as reports come in. */
uint64_t verdict_deadline_ns(const struct launch_verdict *v);
const struct report *
verdict_pick(const struct launch_verdict *v); /* NULL without reports */

/* Reads in a rank's last lines which rank its error names as gone, in the runtime's
 * words: "lost rank 3", "rank 3 (host b, pid 7) was lost" or "called shutdown()", "rank
 * 3 on b exited with code 3" or "was killed by signal 9"; -1: none. A rank does not
 * blame itself. */
int32_t blame_scan(const char *tail, int32_t self);
/* What the launcher exits with: the code, 128 + signal, 125 for our own failures. Never
 * 0. */
int failure_exit_code(const struct failure *f);
/* For people: failure_sentence and why, or only why where it was no rank. */
void report_sentence(const struct report *r, char *ret, size_t size_bytes);
/* Of a rank, by its tail: blames, and f.why where a GPU was the cause (gpu_cause.h). */
void report_explain(struct report *r);
/* The failure line and the tail: at most MESSAGE_MAX_BYTES, the oldest lines left out.
 */
void report_message(const struct report *r, struct strbuf *out);

#endif
