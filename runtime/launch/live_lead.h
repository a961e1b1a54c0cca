/* SPDX-License-Identifier: Apache-2.0 */
/* What the leader of a job (the hub, horovodrun, or hvd-status) knows of its progress: records of all
 * ranks come in, the report goes out to readers.
 *
 * When rank 0 reports a stall, or a process is stopped, the leader has all ranks examined:
 * it calls `examine`, takes their findings until EXAM_NS are over, and concludes who is
 * the cause (core/hang.h). The verdict is in the report, in the log and, with the stacks,
 * in the answer to QUERY_STACKS.
 *
 * A failure here never fails the job: what does not fit memory is dropped. One thread. */
#ifndef RUNTIME_LAUNCH_LIVE_LEAD_H
#define RUNTIME_LAUNCH_LIVE_LEAD_H

#include "runtime/contract/stall_record.h"
#include "runtime/launch/core/hang.h"
#include "runtime/launch/core/live_job.h"
#include "runtime/launch/core/straggle.h"
#include "runtime/launch/live_host.h"
#include "runtime/launch/readers.h"

#define EXAM_NS        (8 * NS_PER_S) /* for all findings */
#define EXAM_RANKS_MAX 512 /* findings that are kept; those of missing ranks always */
#define EXAM_TEXT_MAX  (1u << 20)

struct live_exam {
    uint32_t number;      /* of the last one; 0: there was none */
    uint64_t deadline_ns; /* 0: none is in progress */
    struct hang_finding **v;
    uint32_t n, n_answered, n_wanted;
    char *text; /* result of the last one that has ended; NULL: none */
};

struct live_lead_config {
    /* Asks the agents of all hosts to examine their ranks. */
    void (*examine)(void *arg, uint32_t number);
    const char *(*host_of)(void *arg, uint32_t rank); /* "": unknown */
    bool is_silent; /* its log is not the job's: stalls and stragglers are not logged */
    void *arg;
};

struct live_lead {
    struct live_lead_config c;
    struct live_job job;
    struct straggle straggle;
    struct readers readers;
    struct stall_record record; /* since_wall_us 0: there is none */
    struct live_exam exam;
};

void live_lead_init(struct live_lead *l, const struct live_lead_config *c);
void live_lead_release(struct live_lead *l);
/* Workers are awaited, at first or for another world. */
void live_lead_meet(struct live_lead *l, uint32_t generation, uint32_t n_workers);
void live_lead_set_present(struct live_lead *l, uint32_t n_present);
void live_lead_start(struct live_lead *l, uint32_t size, uint32_t slots);
void live_lead_end(struct live_lead *l);
/* A packed record or finding, or the text of rank 0's record of a stall (empty: it is
 * over), of the current world. A malformed one is logged. number: of the examination. */
void live_lead_take_part(
    struct live_lead *l, enum live_part part, uint32_t number, const void *p, size_t n);
/* Concludes what is due, and answers readers; after each poll. */
void live_lead_serve(struct live_lead *l);
/* When live_lead_serve must be called at the latest. */
uint64_t live_lead_next_ns(const struct live_lead *l);

#endif
