/* SPDX-License-Identifier: Apache-2.0 */
/* What the agent of each worker sends to the hub every LIVE_EVERY_S seconds: one record
 * for each of its ranks, copied from the rank's page (contract/stats_page.h). The hub
 * keeps the last record of each rank and makes the report from them. Pure. */
#ifndef RUNTIME_LIVE_LIVE_WORKER_H
#define RUNTIME_LIVE_LIVE_WORKER_H

#include "runtime/live/live_report.h"

#define LIVE_EVERY_S 5

enum live_rank_state {
    LIVE_RANK_STARTED, /* the process runs; it has no page yet */
    LIVE_RANK_IN_WORLD,
    LIVE_RANK_EXITED,
};

struct live_rank {
    uint32_t rank, pid;
    enum live_rank_state state;
    uint64_t age_ms; /* of its page: since the world began on it */
    /* counters of the page, in its units */
    uint64_t steps, step_ns, blocked_ns, bus_bytes, allreduce_ns;
    uint64_t ready_ns; /* hvd_ready_seconds_total: it waited for others, by batch */
    uint64_t n_batches;
    uint64_t cpu_ms, rss_bytes; /* of the process, from /proc */
    uint64_t stopped_ms;        /* for how long it has been in state T; 0: it is not */
    int64_t stall_ms;  /* of rank 0: STATS_STALL_NS; -1: no stalls are reported */
    uint64_t waits_us; /* of rank 0: STATS_WAITS_NS; 0: none waits */
    struct live_progress progress; /* metrics only from ranks that set some */
};

const char *live_rank_state_name(enum live_rank_state s);
void live_rank_init(
    struct live_rank *r); /* progress and stall_ms unknown, all else 0 */
void live_rank_pack(const struct live_rank *r, struct strbuf *out);
int live_rank_unpack(const void *p, size_t n, struct live_rank *ret, struct err *err);
void live_rank_json(const struct live_rank *r, struct strbuf *out); /* one object */

/* Reads the answer to QUERY_RANKS: calls fn for each record, until it returns another
 * value than 0, which is then the result. *ret_n: their number in the answer. -EPROTO with
 * err; -ENOMEM. */
typedef int (*live_rank_fn)(void *arg, const struct live_rank *r);
int live_ranks_read(const void *p,
                    size_t n,
                    live_rank_fn fn,
                    void *arg,
                    uint32_t *ret_n,
                    struct err *err);

#endif
