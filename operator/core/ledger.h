/* SPDX-License-Identifier: Apache-2.0 */
/* The ledger of one job: in which part of its life each second went, and why. The parts
 * always add up to until_s - start_s. Times are wall seconds. Pure. */
#ifndef OPERATOR_CORE_LEDGER_H
#define OPERATOR_CORE_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ledger_part {
    LEDGER_QUEUED,    /* a pod is not bound to a node */
    LEDGER_PULLING,   /* all are bound; the first container of one has not started */
    LEDGER_STARTING,  /* containers run; agents and ranks start */
    LEDGER_MEETING,   /* agents wait for other workers */
    LEDGER_TRAINING,  /* all ranks are in the world, or what they do is not known */
    LEDGER_STALLED,   /* a collective waits for longer than the stall time */
    LEDGER_REPEATED,  /* training that was done before and lost */
    LEDGER_DOWN,      /* from a failure until the pods of the next attempt exist */
    LEDGER_SUSPENDED, /* by the user */
};
#define LEDGER_PARTS 9
const char *ledger_part_name(enum ledger_part p); /* "queued" */
int ledger_part_find(const char *name);           /* -1: unknown */

#define LEDGER_LOSSES      5 /* the largest are kept */
#define LEDGER_REASON_SIZE 64

struct ledger_loss {
    enum ledger_part part;
    char reason[LEDGER_REASON_SIZE]; /* never "" */
    uint64_t seconds;
    uint32_t count; /* how often it began */
};

/* In what worker 0's agent divides the time of its run, in this order. */
enum ledger_share { SHARE_MEETING, SHARE_STARTING, SHARE_TRAINING, SHARE_STALLED };
#define LEDGER_SHARES 4

struct ledger {
    uint64_t start_s, until_s;
    bool is_closed; /* the job has ended: nothing changes any more */
    /* Before since_s: final. */
    uint64_t seconds[LEDGER_PARTS], gpu_seconds[LEDGER_PARTS];
    struct ledger_loss loss[LEDGER_LOSSES];
    size_t n_losses;
    /* From since_s to until_s the job was in `part`, as far as is known: pods that are
     * seen later can divide this time anew. */
    uint64_t since_s, open_gpu_seconds;
    enum ledger_part part;
    char reason[LEDGER_REASON_SIZE]; /* "": none is known */
    bool is_counted; /* the open part has begun before since_s: the losses count it */
    /* The run of worker 0's agent that was reported last, and what is taken from its
     * times. 0: none. */
    uint64_t run_s, taken_s[LEDGER_SHARES];
    /* What training repeats. Steps, -1: unknown: the last one of this attempt, and the
     * highest of all. For jobs that report no steps: training of this attempt, at its
     * last commit, and lost at the start of the attempt. */
    int64_t step, top_step;
    uint64_t trained_s, saved_s, lost_s;
    bool has_commits;
    char cause[LEDGER_REASON_SIZE]; /* of the last restart; "": none */
};

struct ledger_pod {   /* times: 0: not yet, or unknown */
    bool is_required; /* it has a place in the attempt; others only hold GPUs */
    uint64_t made_s, bound_s, run_s, end_s;
    uint64_t gpus;
};

struct ledger_report { /* of worker 0's agent, seconds of its run by share */
    uint64_t at_s, run_s, share_s[LEDGER_SHARES];
    enum ledger_share state;
    int64_t step;      /* -1: unknown */
    uint64_t commit_s; /* 0: none */
    const char *stall; /* SHARE_STALLED: who is the cause; "": unknown */
};

struct ledger_view {
    bool is_live; /* pods of the attempt exist or will; false: restarting, suspended */
    const struct ledger_pod *pod;
    size_t n_pods;
    bool is_incomplete;                 /* a required pod does not exist */
    const char *waiting;                /* why pods wait; "": no particular reason */
    const struct ledger_report *report; /* NULL: unknown */
};

/* The job begins at start_s in this part. */
void ledger_begin(struct ledger *l, uint64_t start_s, enum ledger_part part);
/* Accounts the time until to_s, or until since_s if that is later. An earlier to_s than
 * before (the clock was set back) takes time back. */
void ledger_advance(struct ledger *l, const struct ledger_view *v, uint64_t to_s);
/* From until_s on, the job is in another part. What was before is final. */
void ledger_switch(struct ledger *l, enum ledger_part part, const char *reason);
/* What was before until_s is final; the part continues. */
void ledger_pin(struct ledger *l);
/* The attempt ends at until_s: what is trained now until it is where it was is
 * repeated, because of `cause`. Call ledger_switch then. */
void ledger_end_attempt(struct ledger *l, const char *cause);
/* The job ends at until_s. */
void ledger_close(struct ledger *l);

/* With the open time: seconds[LEDGER_PARTS] and gpu_seconds of ret are totals; ret has
 * the losses of all time, the largest first. */
void ledger_total(const struct ledger *l, struct ledger *ret);
/* The inverse of ledger_total, for totals that were stored. */
void ledger_untotal(struct ledger *l);

#endif
