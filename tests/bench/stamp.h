/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of the start-up benchmark records that its init has returned: one line
 * "RANK SIZE NANOSECONDS" (CLOCK_MONOTONIC, one clock for the whole host), appended to
 * the file that BENCH_STAMPS names. start.py reads them. */
#ifndef TESTS_BENCH_STAMP_H
#define TESTS_BENCH_STAMP_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* The time is taken first; the exit status says whether the line was written. */
static int stamp_write(int rank, int size)
{
    struct timespec t;
    char line[64];
    const char *file = getenv("BENCH_STAMPS");
    int fd, n;

    clock_gettime(CLOCK_MONOTONIC, &t);
    n = snprintf(line, sizeof(line), "%d %d %lld\n", rank, size,
                 (long long)t.tv_sec * 1000000000LL + t.tv_nsec);
    fd = open(file != NULL ? file : "BENCH_STAMPS is not set", O_WRONLY | O_APPEND);
    if (fd < 0 || write(fd, line, (size_t)n) != n) {
        perror("BENCH_STAMPS");
        return 1;
    }
    (void)close(fd);
    return 0;
}

#endif
