/* SPDX-License-Identifier: Apache-2.0 */
/* The live report of the job that a hub leads, from the records of all ranks. Pure; times
 * come in. The hub's thread owns it. */
#ifndef RUNTIME_LAUNCH_CORE_LIVE_JOB_H
#define RUNTIME_LAUNCH_CORE_LIVE_JOB_H

#include "runtime/live/live_worker.h"

#define LIVE_SAMPLES    13 /* one in LIVE_EVERY_S seconds: rates are over a minute */
/* A rank that has no page by then does not use the runtime: its world had to be complete
 * earlier (HOROVOD_START_TIMEOUT). */
#define LIVE_ALONE_NS   (600 * 1000000000ull)

/* A process that is stopped for so long is named: before its silence ends the job
 * (HVD_PEER_TIMEOUT, 30 s). */
#define LIVE_STOPPED_MS 5000

/* From the end of the stall time until the verdict is there, mostly: rank 0's record is
 * read within a second, and an examination takes 2 s. */
#define LIVE_VERDICT_MS 3500

struct live_sample { /* sums over all ranks, except where a rank is named */
    uint64_t ns;
    uint64_t plan_steps, plan_ms; /* rank 0: its steps, and its age then */
    uint64_t blocked_ns, age_ms, bus_bytes, allreduce_ns;
    int64_t step, samples; /* by hvd.progress; -1: unknown */
    uint64_t updated_us;
};

struct live_job {
    uint64_t run_wall_us;
    enum live_state state;
    uint64_t now_ns;     /* up to then the times are counted */
    uint64_t world_ns;   /* when the ranks of the current world were started */
    uint64_t part_ns[4]; /* by enum live_state, without LIVE_ENDING */
    uint64_t unmoved_ns; /* of the current stretch of training: may become stalled */
    uint32_t generation, size, slots, n_workers, n_present;
    struct live_rank *ranks;                  /* by rank */
    uint32_t n_ranks, n_in_world, n_stopped;  /* n_stopped: see live_job_stopped */
    struct live_sample samples[LIVE_SAMPLES]; /* the oldest first */
    uint32_t n_samples;
    struct live_stall stall;
    struct live_straggler straggler;
    struct live_elastic elastic; /* max_ranks 0: the job is not */
};

void live_job_init(struct live_job *j, uint64_t now_ns, uint64_t wall_us);
void live_job_release(struct live_job *j); /* accepts a zeroed one */
/* Counts the time until now for the state that has lasted. Called before anything below,
 * and before a report. */
void live_job_advance(struct live_job *j, uint64_t now_ns);
/* Agents are awaited, at first or for another world. */
void live_job_meet(struct live_job *j, uint32_t generation, uint32_t n_workers);
void live_job_set_present(struct live_job *j, uint32_t n_present);
/* The ranks are being started. -ENOMEM: their records are ignored. */
int live_job_start(struct live_job *j, uint32_t size, uint32_t slots);
/* For a leader that begins to look at ranks that run already: they were started run_ms
 * ago, and their world began world_ms ago. After live_job_start, and again when their
 * world is known to be complete; run_ms is 0 then. */
void live_job_join(struct live_job *j, uint64_t run_ms, uint64_t world_ms);
/* A record of the current world. Unknown ranks are ignored. */
void live_job_take(struct live_job *j, const struct live_rank *r);
/* A rank whose process has been stopped for LIVE_STOPPED_MS; NULL: none. */
const struct live_rank *live_job_stopped(const struct live_job *j);
/* NULL: the stall is over. The time since it began counts as stalled, not as training. */
void live_job_set_stall(struct live_job *j,
                        const struct live_stall *stall,
                        uint64_t wall_us);
void live_job_set_elastic(struct live_job *j, const struct live_elastic *elastic);
void live_job_end(struct live_job *j);
/* again_ms is without an examination, which may be in progress. */
void live_job_report(const struct live_job *j,
                     uint64_t wall_us,
                     struct live_report *ret);

#endif
