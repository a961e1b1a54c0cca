/* SPDX-License-Identifier: Apache-2.0 */
/* Time. Monotonic nanoseconds for deadlines and durations; wall time only for what
 * people read. */
#ifndef RUNTIME_BASE_CLOCK_H
#define RUNTIME_BASE_CLOCK_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define NS_PER_MS 1000000ull
#define NS_PER_S  1000000000ull

/* The earlier of two times, or the shorter of two spans. */
static inline uint64_t earlier_ns(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t clock_now_ns(void); /* CLOCK_MONOTONIC */
uint64_t clock_wall_s(void); /* seconds since the epoch */
uint64_t clock_wall_us(void);
/* "2026-11-21T11:22:33Z"; buf at least 21 bytes; returns buf. */
char *clock_rfc3339(uint64_t wall_s, char *buf, size_t size_bytes);
/* Milliseconds until deadline_ns, rounded up, for poll(): 0 when past, at most INT_MAX;
 * UINT64_MAX means no deadline: -1. */
int clock_left_ms(uint64_t deadline_ns);
struct timespec clock_timespec(uint64_t ns);
/* Timed waits of the calling thread end on time; Linux may end them 50 us late, so that
 * threads wake up together. For threads of ours whose short naps others wait for. */
void clock_wake_on_time(void);
/* A condition whose timed waits take clock_timespec of the monotonic clock. */
void clock_init_cond(pthread_cond_t *c);

#endif
