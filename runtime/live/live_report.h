/* SPDX-License-Identifier: Apache-2.0 */
/* The live report of a job: what it does now. Worker 0's agent builds it from the
 * reports of all agents (live_worker.h). One format serves .status and /metrics of the
 * operator, `hvd-agent report` and everything that is built on these. Pure.
 *
 * Wire form: "HVL1", then sections {id:2 length:4 bytes}. A reader ignores sections that
 * it does not know and bytes behind the fields that it knows, so that programs of
 * different versions understand each other: fields are only ever appended. */
#ifndef RUNTIME_LIVE_LIVE_REPORT_H
#define RUNTIME_LIVE_LIVE_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"

#define LIVE_REPORT_MAX_BYTES 16384 /* of a packed report */
#define LIVE_NAME_MAX         128   /* with NUL: tensors, hosts, names of metrics */
#define LIVE_TEXT_MAX         1024  /* with NUL: one sentence */
#define LIVE_METRICS_MAX      16
#define LIVE_MISSING_MAX      16

enum live_state {
    LIVE_MEETING,  /* not all workers are present */
    LIVE_STARTING, /* ranks were started; their world is not complete */
    LIVE_TRAINING, /* all ranks are in the world */
    LIVE_STALLED,  /* a collective waits for longer than the stall time */
    LIVE_ENDING,   /* the job has ended; agents leave */
};
const char *live_state_name(enum live_state s); /* "Meeting" */

struct live_metric {
    char name[LIVE_NAME_MAX];
    double value;
};

/* From hvd.progress() on the lowest rank that calls it. -1: unknown. */
struct live_progress {
    int64_t step, total_steps, epoch, total_epochs;
    int64_t samples;          /* of the whole job, since its start or restart */
    double samples_per_s;     /* of the last minute; negative: unknown */
    uint64_t updated_wall_us; /* of the last call; 0: none */
    uint64_t commit_wall_us;  /* of the last commit of elastic state; 0: none */
    int64_t commit_step;      /* `step` then */
    struct live_metric metrics[LIVE_METRICS_MAX];
    uint32_t n_metrics;
};

/* Over the last minute, or since the world began. Negative: unknown. */
struct live_rates {
    double steps_per_s;     /* by hvd.progress, else by rounds of the frozen plan */
    double bus_bytes_per_s; /* of allreduce, while it runs */
    double
        blocked_share; /* of time in which the program waited for collectives, 0 to 1:
                           * communication that was not hidden; mean of the ranks */
};

/* Why a rank does not take part in a collective (launch/core/hang.h decides). */
enum live_cause {
    LIVE_CAUSE_UNKNOWN,
    LIVE_CAUSE_STOPPED,  /* SIGSTOP, SIGTSTP or a debugger */
    LIVE_CAUSE_SWAPPING, /* major faults take its time */
    LIVE_CAUSE_DEADLOCK, /* all its Python threads wait for locks of each other */
    LIVE_CAUSE_LOCK,     /* it waits for a lock: futex, flock, lockf */
    LIVE_CAUSE_LOOP,     /* it computes, always at the same place */
    LIVE_CAUSE_BRANCH,   /* it waits in another collective: ranks are out of step */
    LIVE_CAUSE_STORAGE,  /* it waits for a file system or a block device */
    LIVE_CAUSE_BUSY,     /* it computes, at changing places: it is late */
    LIVE_CAUSE_SLEEPING, /* it waits for something else: a socket, a pipe, a timer */
    LIVE_CAUSE_ABSENT,   /* the process does not exist any more, or is a zombie */
};
const char *live_cause_name(enum live_cause c); /* "Stopped" */

struct live_stall {
    uint64_t since_wall_us; /* submission of the oldest waiting tensor; 0: no stall */
    uint64_t seen_wall_us;  /* when the stall was reported by rank 0 */
    char tensor[LIVE_NAME_MAX], op[32];
    uint32_t missing[LIVE_MISSING_MAX],
        n_missing; /* n_missing may be larger than the list */
    /* Of the verdict: the missing rank that is the cause. While the cause is unknown, the
     * first missing one; -1: none. */
    int32_t rank;
    char host[LIVE_NAME_MAX];
    enum live_cause cause;
    char text[LIVE_TEXT_MAX]; /* one sentence: who, where, since when, what it does */
    bool has_stacks;          /* live_query QUERY_STACKS has them */
};

struct live_straggler {
    int32_t rank; /* -1: none */
    char host[LIVE_NAME_MAX];
    uint32_t worker;
    bool is_worker; /* all its ranks are slow, and there are several */
    double cost_s;  /* per step: what the other ranks wait for it */
    double share;   /* of the step's time, 0 to 1 */
    uint64_t since_wall_us;
};

/* Milliseconds of this run (since worker 0's agent started), by state. The parts add up
 * to the age of the run, until the job ends. */
struct live_times {
    uint64_t meeting_ms, starting_ms, training_ms, stalled_ms;
};

struct live_elastic {
    uint32_t min_ranks, max_ranks; /* 0: the job is not elastic */
    uint32_t n_ready;              /* processes that wait for a world */
    uint32_t n_resets;             /* worlds after the first */
    uint32_t n_excluded;           /* slots, after failures */
    uint64_t excluded_ms;          /* until the first of them returns */
    char waits[200];               /* for what; "": it does not */
    char failure[480];             /* the last one, a sentence; "": there was none */
};

struct live_report {
    uint64_t at_wall_us, run_wall_us; /* when it was made; when the agent started */
    enum live_state state;
    uint32_t generation, size, slots, n_workers, n_present; /* n_present: agents */
    uint64_t n_steps; /* rounds of plans on rank 0, in this world */
    /* A reader that waits for verdicts asks again after that time; negative: it need not. */
    int64_t again_ms;
    struct live_times times;
    struct live_rates rates;
    struct live_progress progress;
    struct live_stall stall;
    struct live_straggler straggler;
    struct live_elastic elastic;
};

/* All numbers unknown, no stall, no straggler. */
void live_report_init(struct live_report *r);
void live_report_pack(const struct live_report *r, struct strbuf *out);
/* -EPROTO with err. Unknown sections are ignored; what a shorter section lacks keeps the
 * value of live_report_init. */
int live_report_unpack(const void *p,
                       size_t n,
                       struct live_report *ret,
                       struct err *err);
/* One JSON object. Numbers that are unknown are left out. */
void live_report_json(const struct live_report *r, struct strbuf *out);

#endif
