/* SPDX-License-Identifier: Apache-2.0 */
/* One timing protocol for every peer, so that their figures compare: sum of float32 in
 * place, sizes 4 KiB to 128 MiB.
 *
 *   median, min  each iteration: barrier (not timed), one allreduce; its time is the
 *                slowest rank's
 *   mean         N allreduces in a row without barriers, total / N, slowest rank
 *
 * Rank 0 prints timing.h's line a size. A wrong sum is fatal. Included by one .c file a
 * program. */
#ifndef TESTS_BENCH_MEASURE_H
#define TESTS_BENCH_MEASURE_H

#include <stdint.h>
#include <string.h>

#include "tests/bench/timing.h"

struct peer_ops {
    const char *name;
    int rank, size;
    void *ctx;
    void (*allreduce)(void *ctx, float *x, size_t n);
    void (*barrier)(void *ctx);
    void (*max)(void *ctx, double *x, int n); /* element-wise over ranks, in place */
};

static int sum_is_right(const struct peer_ops *p, float *x, size_t n)
{
    float base = (float)(p->size * (p->size + 1)) / 2;
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(p->rank + 1) + (float)(i % 7);
    p->allreduce(p->ctx, x, n);
    for (size_t i = 0; i < n; i++)
        if (x[i] != base + (float)p->size * (float)(i % 7)) {
            fprintf(stderr, "%s: rank %d: wrong sum at %zu of %zu\n", p->name, p->rank,
                    i, n);
            return 0;
        }
    return 1;
}

static int measure_size(const struct peer_ops *p, size_t bytes, int iters)
{
    size_t n = bytes / sizeof(float);
    int warm = iters / 10 < 3 ? 3 : iters / 10, n_b2b = iters / 2 < 10 ? 10 : iters / 2;
    double *t = (double *)calloc((size_t)iters, sizeof(*t)), b2b; /* C++ too */
    float *x;
    if (!t || posix_memalign((void **)&x, 4096, bytes) != 0)
        return 1;
    if (!sum_is_right(p, x, n))
        return 1;
    memset(x, 0, bytes);
    for (int i = 0; i < warm; i++)
        p->allreduce(p->ctx, x, n);
    for (int i = 0; i < iters; i++) {
        p->barrier(p->ctx);
        double a = now_us();
        p->allreduce(p->ctx, x, n);
        t[i] = now_us() - a;
    }
    p->barrier(p->ctx);
    p->max(p->ctx, t, iters);
    p->barrier(p->ctx);
    double a = now_us();
    for (int i = 0; i < n_b2b; i++)
        p->allreduce(p->ctx, x, n);
    b2b = (now_us() - a) / n_b2b;
    p->max(p->ctx, &b2b, 1);
    if (p->rank == 0)
        print_row(p->name, p->size, bytes, t, iters, b2b);
    free(t);
    free(x);
    return 0;
}

static int peer_measure(const struct peer_ops *p)
{
    static const size_t sizes[] = {4096, 65536, 1 << 20, 16 << 20, 128 << 20};
    static const int iters[] = {1000, 500, 200, 40, 15};
    const char *max = getenv("BENCH_MAX_BYTES");
    size_t max_bytes = max != NULL ? strtoull(max, NULL, 10) : SIZE_MAX;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes) && sizes[i] <= max_bytes; i++)
        if (measure_size(p, sizes[i], iters[i]) != 0)
            return 1;
    return 0;
}

#endif
