/* SPDX-License-Identifier: Apache-2.0 */
/* Which rank the other ranks wait for, from the counters of all ranks. Pure.
 *
 *   straggle_init -> straggle_feed() for each record that arrives, straggle_check() every
 *   few seconds -> straggle_release. A new world of another size: release, init. */
#ifndef RUNTIME_LAUNCH_CORE_STRAGGLE_H
#define RUNTIME_LAUNCH_CORE_STRAGGLE_H

#include "runtime/base/err.h"
#include "runtime/live/live_worker.h"

#define STRAGGLE_MAX_RANKS 65536u
#define STRAGGLE_WINDOWS   8 /* that are remembered */

struct straggle_rank;

struct straggle_verdict {
    int32_t rank; /* that the other ranks wait for most; -1: none */
    uint32_t worker;
    uint32_t n_ranks; /* ranks of this worker that are slow like it, itself included */
    bool
        is_worker; /* these are all its ranks, and there are several: the host is slow */
    double cost_s;          /* per step: what a typical rank waits for it */
    double share;           /* of the time of a step, 0 to 1 */
    uint64_t since_wall_us; /* when the first window began in which it was slow */
};

struct straggle {
    uint32_t n, slots;           /* ranks; ranks of a worker */
    struct straggle_rank *ranks; /* [n] */
    double *scratch;             /* [n + STRAGGLE_WINDOWS] */
    /* the open window */
    uint64_t from_ns, from_wall_us, checked_ns;
    bool is_open;
    /* closed windows: a ring */
    uint64_t begins_wall_us[STRAGGLE_WINDOWS];
    uint64_t n_closed, closed_ns; /* how many; when the last one was */
    double noise; /* by how much a rank's share differs between windows, smoothed */
    uint32_t n_noise;
    struct straggle_verdict verdict;
};

/* slots: ranks of each worker; rank r belongs to worker r / slots. -EINVAL, -ENOMEM. */
int straggle_init(struct straggle *s,
                  uint32_t n_ranks,
                  uint32_t slots,
                  struct err *err);
void straggle_release(struct straggle *s); /* accepts a zeroed one */

/* The newest record of a rank. Ranks that the job does not have are ignored. */
void straggle_feed(struct straggle *s, const struct live_rank *r);

/* Often enough: every five seconds at least. More often than once a second it returns at
 * once; else it is linear in the ranks. Returns the verdict, which is valid until the next
 * call. */
const struct straggle_verdict *
straggle_check(struct straggle *s, uint64_t now_ns, uint64_t now_wall_us);

#endif
