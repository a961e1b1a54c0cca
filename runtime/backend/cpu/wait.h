/* SPDX-License-Identifier: Apache-2.0 */
/* How a rank waits for another one: spin, then yield, then sleep, calling check() at
 * least every slice. */
#ifndef RUNTIME_BACKEND_CPU_WAIT_H
#define RUNTIME_BACKEND_CPU_WAIT_H

#include <stdint.h>

#include "runtime/base/err.h"

/* The longest sleep, which bounds the delay until abort and interrupts are detected. */
#define WAIT_SLICE_NS 5000000ull
#define WAIT_YIELD_NS 200000ull /* how long to yield before the first sleep */

struct waiter {
    uint32_t n_spins; /* 0 where more ranks than CPUs run */
    uint32_t n_cpus;  /* that we may run on; 0: unknown */
    /* Called in the slow part of every wait: 0 to continue, or the reason to stop.
     * rank: the global rank that is waited for. */
    int (*check)(void *arg, uint32_t rank, struct err *err);
    void *arg;
    uint64_t patience_ns; /* how long a wait may see no progress; 0: no limit */
    uint64_t slice_ns;    /* 0: WAIT_SLICE_NS. Tests of wake-ups sleep longer */
};

/* One wait; zeroed at its start and whenever something has moved. Counts only the
 * time in which this process ran: a slice in which it was stopped or starved counts
 * as one. */
struct patience {
    uint64_t seen_ns, spent_ns;
};

/* -ETIMEDOUT when rank was silent for too long. */
int patience_spend(const struct waiter *w,
                   struct patience *p,
                   uint32_t rank,
                   struct err *err);

static inline uint64_t wait_slice_ns(const struct waiter *w)
{
    return w->slice_ns > 0 ? w->slice_ns : WAIT_SLICE_NS;
}

/* The slow part of every wait: check() and patience_spend(). */
int wait_check(const struct waiter *w,
               struct patience *p,
               uint32_t rank,
               struct err *err);

static inline void cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
