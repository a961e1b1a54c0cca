/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks of one host do, for the leader of the job. Nothing here can fail the job.
 * One thread.
 *
 *   record   of each rank, every LIVE_EVERY_S seconds, from its page
 *            (contract/stats_page.h) and /proc; every second while a rank has no page yet
 *            or is stopped, so that a change is seen when it happens, and on the host of
 *            rank 0 if the stall time is short
 *   stall    the file with rank 0's record (contract/stall_record.h), on the host of rank
 *            0, within a second of each change
 *   finding  of each rank, when the leader has asked for an examination */
#ifndef RUNTIME_LAUNCH_LIVE_HOST_H
#define RUNTIME_LAUNCH_LIVE_HOST_H

#include "runtime/launch/local_ranks.h"
#include "runtime/launch/trainer.h"
#include "runtime/live/live_worker.h"

#define LIVE_NO_RANK UINT32_MAX

enum live_part { LIVE_PART_RECORD, LIVE_PART_STALL, LIVE_PART_FINDING };

struct live_host_config {
    const char *dir; /* HVD_STATS_DIR of the ranks */
    /* of this host; place.rank LIVE_NO_RANK: in no world, it has no record */
    const struct contract *ranks;
    uint32_t n;
    const pid_t
        *pids; /* of the ranks, where another program has started them; 0: it has
                        * exited. NULL: local_ranks.h knows */
    struct trainer
        *trainer; /* its reports are progress of the first rank; NULL: none */
    /* Sends a part to the leader. number: of the examination; else 0. */
    void (*send)(void *arg,
                 enum live_part part,
                 uint32_t number,
                 const struct strbuf *b);
    void *arg;
};

struct watched_rank {
    uint32_t pid;        /* of its page in the last record; 0: it had none */
    uint64_t stopped_ns; /* since when it is stopped; 0: it is not */
};

struct live_host {
    struct live_host_config c;    /* its pointers are borrowed */
    uint64_t tick_ns, records_ns; /* when it is next looked, and when records are due */
    struct watched_rank *watched; /* by index; NULL: memory was out */
    char *stall;                  /* the record that was sent last; NULL: none */
    struct examination *exam;     /* NULL: none is in progress */
    uint32_t number;              /* of it */
};

/* The ranks were started. */
void live_host_begin(struct live_host *h, const struct live_host_config *c);
void live_host_end(struct live_host *h); /* accepts a zeroed one */
/* Sends what is due. local: NULL with pids. *ret_next_ns is lowered to the time of the next call. */
void live_host_tick(struct live_host *h,
                    const struct local_ranks *local,
                    uint64_t *ret_next_ns);
/* Begins examination `number` of all ranks; one that is in progress is given up. */
void live_host_examine(struct live_host *h, uint32_t number);

#endif
