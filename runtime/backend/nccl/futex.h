/* SPDX-License-Identifier: Apache-2.0 */
/* Sleeps on a word that another thread of this process changes. */
#ifndef RUNTIME_BACKEND_NCCL_FUTEX_H
#define RUNTIME_BACKEND_NCCL_FUTEX_H

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/base/clock.h"

/* Returns at once unless *word == seen; may return early; returns after at most ns
 * (UINT64_MAX: no limit). */
static inline void futex_wait(const _Atomic uint32_t *word, uint32_t seen, uint64_t ns)
{
    struct timespec t = clock_timespec(ns == UINT64_MAX ? 0 : ns);

    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen,
                  ns == UINT64_MAX ? NULL : &t, NULL,
                  0); /* any outcome: the caller checks
                                                             again */
}

static inline void futex_wake(_Atomic uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Time left until deadline_ns (UINT64_MAX: unlimited); 0: it has passed. */
static inline uint64_t futex_left(uint64_t deadline_ns)
{
    if (deadline_ns == UINT64_MAX)
        return UINT64_MAX;
    uint64_t now = clock_now_ns();
    return now < deadline_ns ? deadline_ns - now : 0;
}

#endif
