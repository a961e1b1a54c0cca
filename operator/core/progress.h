/* SPDX-License-Identifier: Apache-2.0 */
/* The live report of a job (runtime/live/live_report.h) as values of its status. They are
 * rounded, so that a report that brings nothing new gives the same values. Pure. */
#ifndef OPERATOR_CORE_PROGRESS_H
#define OPERATOR_CORE_PROGRESS_H

#include "operator/doc/node.h"
#include "runtime/live/live_report.h"

/* .status.progress. old: the stored one or NULL; it is returned as a copy if the report
 * brings nothing new, and its eta stays while the new one is almost the same.
 * received_wall_s: when the report was received. NULL: the report contains no progress, or
 * out of memory (b->status). */
struct node *progress_make(struct build *b,
                           const struct live_report *r,
                           uint64_t received_wall_s,
                           const struct node *old);
/* A copy of a stored progress whose job does not run: without the time of its end. */
struct node *progress_at_rest(struct build *b, const struct node *old);

/* A condition that a report makes true. text is in the arena of the builder. */
struct live_verdict {
    bool is_true;
    const char *reason, *text; /* "" if it is false */
};
/* Stalled. A stall is true when its cause is known, or STALL_QUIET_S after it was
 * reported. */
#define STALL_QUIET_S 10u
struct live_verdict progress_stall(struct build *b, const struct live_report *r);
/* Straggling. */
struct live_verdict progress_straggler(struct build *b, const struct live_report *r);

/* True when agents have waited for MEETING_QUIET_MS for other agents (core/why.h has the
 * sentence). */
#define MEETING_QUIET_MS 20000u
bool progress_is_unmet(const struct live_report *r);

/* What is not UTF-8, and control characters, become "?". */
void progress_clean(char *s);

/* Equal for reports that give the same verdicts, and the same progress except eta.
 * -ENOMEM. */
struct live_digest {
    uint64_t verdicts; /* 0: none is true */
    uint64_t progress; /* with the texts of the verdicts */
};
int progress_digest(const struct live_report *r, struct live_digest *ret);

#endif
