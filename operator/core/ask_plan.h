/* SPDX-License-Identifier: Apache-2.0 */
/* When each job is asked what it does (operator/ask.h), and when its answer is worth a
 * sync. Pure, one thread.
 *
 * Time is a circle of one interval. Each job has a fixed place on it, a hash of its uid,
 * and is asked when the hand passes there: jobs are spread evenly. If the operator is
 * late, the hand is late for all jobs.
 *
 * Some jobs are in addition asked soon, whatever their place:
 *  - one that has just started, ASK_FIRSTS times: it may be over before the hand is there
 *  - one whose report wants it (live_report.again_ms), because a stall may come or is being
 *    examined. Such an answer is news only for its verdicts. */
#ifndef OPERATOR_CORE_ASK_PLAN_H
#define OPERATOR_CORE_ASK_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "operator/core/progress.h"

#define ASK_MAX_AT_ONCE  64u
#define ASK_MAX_DOUBTFUL 32u /* of these, jobs that did not answer the last time */
#define ASK_DEADLINE_NS  3000000000ull
#define ASK_MAX_WAIT_NS  300000000000ull /* longest back-off */
#define ASK_FIRSTS       3u
#define ASK_SOON_GAP_NS  30000000ull   /* between two questions soon, of all jobs */
#define ASK_SOON_MIN_NS  1000000000ull /* before a job is asked again */
#define ASK_STALE        3u /* intervals after which a report counts as unknown */
/* Share of the API server's rate (--kube-api-qps) for statuses that only bring progress:
 * one in so many requests. */
#define ASK_WRITE_SHARE  3u

enum ask_result {
    ASK_OK,
    ASK_UNREACHABLE, /* no connection, or no answer in time */
    ASK_REFUSED,     /* wrong token */
    ASK_GARBAGE,     /* not our protocol, another job, or no report */
    ASK_NO_TOKEN,    /* the Secret could not be read */
};
#define ASK_RESULTS 5
const char *ask_result_name(enum ask_result r); /* "ok", for metrics */
/* Of an errno of live_ask.h. */
enum ask_result ask_result_of(int error);

struct ask_turn {        /* of one job */
    uint64_t place_ns;   /* on the circle */
    uint64_t soon_ns;    /* when it is to be asked soon; 0: it is not */
    uint64_t after_ns;   /* it is not asked before at its place */
    uint32_t n_failures; /* in a row */
    uint32_t n_firsts;   /* how often more it is asked because it has just started */
    bool is_extra;       /* its report has wanted the last question */
};
struct ask_entry {
    uint64_t at_ns;
    struct ask_turn *turn;
};
struct ask_row {
    struct ask_entry *v; /* by at_ns; no two are equal */
    size_t n, cap;
};
struct ask_wheel {
    struct ask_row places, soon;
    uint64_t interval_ns, hand_ns; /* the hand: every place before it is done */
    uint64_t gap_ns;               /* no question soon before */
};
void ask_wheel_init(struct ask_wheel *w, uint64_t interval_ns, uint64_t now_ns);
void ask_wheel_release(struct ask_wheel *w);
/* The turn must live until ask_wheel_remove. -ENOMEM, or -E2BIG at a million. */
int ask_wheel_add(struct ask_wheel *w, struct ask_turn *t, const char *uid);
/* The job of that turn, which is on the wheel, has just started. Out of memory it is asked
 * at its place only. */
void ask_wheel_start(struct ask_wheel *w, struct ask_turn *t, uint64_t now_ns);
/* After ask_turn_end: the job's report wants to be asked again after so many milliseconds;
 * negative: it does not. Ignored from an interval on, and for a job that has just started. */
void ask_wheel_again(struct ask_wheel *w,
                     struct ask_turn *t,
                     int64_t again_ms,
                     uint64_t now_ns);
void ask_wheel_remove(struct ask_wheel *w, const struct ask_turn *t);
/* The next job whose turn has come: one to be asked soon, or the one to which the hand moves.
 * NULL: the hand has passed all until now_ns. */
struct ask_turn *ask_wheel_take(struct ask_wheel *w, uint64_t now_ns);
uint64_t ask_wheel_next_ns(const struct ask_wheel *w); /* UINT64_MAX: no job */
/* The job that was taken at now_ns was asked. After a second failure it is passed
 * over once, then three times, and so on, up to ASK_MAX_WAIT_NS. Failures of a job that has
 * just started count as one: its agent may not listen yet. */
void ask_turn_end(struct ask_turn *t,
                  enum ask_result r,
                  uint64_t interval_ns,
                  uint64_t now_ns);
bool ask_is_stale(uint64_t received_ns, uint64_t interval_ns, uint64_t now_ns);

/* One in how many turns of a job may lead to a status that only brings progress: so many
 * that n_jobs jobs keep to their share of qps. */
uint32_t ask_write_turns(uint64_t interval_ns, size_t n_jobs, uint32_t qps);
/* NEWS_VERDICT: a sync is due now; NEWS_PROGRESS: after all other jobs. shown: of the
 * report in the status; zeroed: none. Jobs take different turns. */
enum ask_news { NEWS_NONE, NEWS_PROGRESS, NEWS_VERDICT };
enum ask_news ask_news_of(const struct ask_wheel *w,
                          const struct ask_turn *t,
                          const struct live_digest *shown,
                          const struct live_digest *digest,
                          uint32_t write_turns);

#endif
