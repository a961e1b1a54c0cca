/* SPDX-License-Identifier: Apache-2.0 */
/* A clock, the line that every program prints and run.py reads, and the order that its
 * median needs:
 *
 *     AR,peer,np,bytes,iterations,median_us,min_us,p90_us,mean_us
 *
 * times[i] is the slowest rank's i-th iteration; mean_us is over iterations in a row.
 */
#ifndef TESTS_BENCH_TIMING_H
#define TESTS_BENCH_TIMING_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static inline double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static inline int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts times. */
static inline void
print_row(const char *peer, int np, size_t bytes, double *times, int n, double mean)
{
    qsort(times, (size_t)n, sizeof(*times), by_value);
    printf("AR,%s,%d,%zu,%d,%.2f,%.2f,%.2f,%.2f\n", peer, np, bytes, n, times[n / 2],
           times[0], times[n * 9 / 10], mean);
    fflush(stdout);
}

#endif
