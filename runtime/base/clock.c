/* SPDX-License-Identifier: Apache-2.0 */
/* The only file of base/ that reads clocks. */
#include "runtime/base/clock.h"

#include <limits.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <time.h>

uint64_t clock_now_ns(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC, &ts); /* cannot fail for this clock */
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

uint64_t clock_wall_us(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_REALTIME, &ts); /* cannot fail for this clock */
    return (uint64_t)ts.tv_sec * 1000000u + (uint64_t)ts.tv_nsec / 1000u;
}

uint64_t clock_wall_s(void)
{
    return clock_wall_us() / 1000000u;
}

char *clock_rfc3339(uint64_t wall_s, char *buf, size_t size_bytes)
{
    time_t t = (time_t)wall_s;
    struct tm tm;

    if (!gmtime_r(&t, &tm) || strftime(buf, size_bytes, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
        (void)snprintf(buf, size_bytes, "1970-01-01T00:00:00Z"); /* year out of range */
    return buf;
}

int clock_left_ms(uint64_t deadline_ns)
{
    if (deadline_ns == UINT64_MAX)
        return -1;

    uint64_t now = clock_now_ns();
    if (deadline_ns <= now)
        return 0;

    uint64_t left = deadline_ns - now;
    uint64_t ms = left / NS_PER_MS + (left % NS_PER_MS ? 1 : 0);
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

struct timespec clock_timespec(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S),
                             .tv_nsec = (long)(ns % NS_PER_S)};
}

void clock_wake_on_time(void)
{
    (void)prctl(PR_SET_TIMERSLACK, 1ul, 0, 0, 0); /* in ns; cannot fail */
}

void clock_init_cond(pthread_cond_t *c)
{
    pthread_condattr_t attr;

    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(c, &attr);
    (void)pthread_condattr_destroy(&attr);
}
