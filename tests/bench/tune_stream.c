/* SPDX-License-Identifier: Apache-2.0 */
/* Training steps whose gradients come one after the other, as backward yields them:
 *
 *     bench_stream BACKWARD_MS STEPS COUNT...
 *
 * Each COUNT is a float32 tensor, summed in place. In a step tensor i is submitted at
 * its share of BACKWARD_MS (the time that backward would have computed by then goes by
 * sleeping, so that the processors are the runtime's); then all are waited for. With
 * HOROVOD_AUTOTUNE=1 it goes on until rank 0 has its settings. Then STEPS steps are
 * measured; rank 0 prints timing.h's line and
 *
 *     USED,fusion_bytes,window_us,steps_before
 *
 * A wrong sum in the first or the last step is fatal. tune.py starts it. */
#include "tests/bench/capi.h"
#include "tests/bench/timing.h"

enum { WARM_UP = 5, MAX_TENSORS = 1000, MAX_STEPS = 1000, MAX_TUNING = 5000 };

struct grad {
    char name[16];
    float *x;
    int64_t n;
    hvd_handle h;
};

static void sleep_until(double us)
{
    struct timespec t = {.tv_sec = (time_t)(us / 1e6)};

    t.tv_nsec = (long)((us - (double)t.tv_sec * 1e6) * 1e3);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) != 0)
        ;
}

/* The last tensor is a flag. */
static void grads_step(struct grad *g, int n, double backward_us)
{
    double begin = now_us();

    for (int i = 0; i < n; i++) {
        struct hvd_tensor t = capi_tensor(g[i].name, g[i].x, HVD_FLOAT32, &g[i].n);
        double due = begin + backward_us * (i + 1) / n;

        if (due > now_us() + 60) /* what a sleep lasts at least */
            sleep_until(due);
        capi_must(hvd_allreduce_async(&t, HVD_SUM, 1.0, 1.0, 0, &g[i].h), g[i].name);
    }
    for (int i = 0; i < n; i++) {
        capi_must(hvd_wait(g[i].h, -1), g[i].name);
        capi_must(hvd_release(g[i].h), g[i].name);
    }
}

static void checked_step(struct grad *g, int n, double backward_us)
{
    int size = hvd_size();
    float sum = (float)(size * (size - 1)) / 2;

    for (int i = 0; i < n; i++)
        for (int64_t j = 0; j < g[i].n; j++)
            g[i].x[j] = (float)hvd_rank() + (float)(i + j % 5);
    grads_step(g, n, backward_us);
    for (int i = 0; i < n; i++)
        for (int64_t j = 0; j < g[i].n; j++)
            if (g[i].x[j] != sum + (float)size * (float)(i + j % 5)) {
                fprintf(stderr, "rank %d: wrong sum in %s at %lld of %lld\n",
                        hvd_rank(), g[i].name, (long long)j, (long long)g[i].n);
                exit(1);
            }
    for (int i = 0; i < n; i++) /* sums that grow from step to step would overflow */
        for (int64_t j = 0; j < g[i].n; j++)
            g[i].x[j] = 0;
}

/* Rank 0's, for all ranks end tuning at the same step. */
static float is_tuning(void)
{
    struct hvd_stats s = {.size_bytes = sizeof(s)};

    capi_must(hvd_stats(&s), "stats");
    return s.is_tuning ? 1 : 0;
}

static int grads_tune(struct grad *g, int n, double backward_us)
{
    int k = 0;

    do {
        g[n - 1].x[0] = is_tuning();
        grads_step(g, n, backward_us);
        k++;
    } while (k < WARM_UP || (g[n - 1].x[0] > 0 && k < MAX_TUNING));
    return k;
}

static void
times_report(double *times, int n_steps, size_t bytes, double mean, int n_before)
{
    struct hvd_stats s = {.size_bytes = sizeof(s)};

    capi_must(hvd_stats(&s), "stats");
    print_row("stream", hvd_size(), bytes, times, n_steps, mean);
    printf("USED,%llu,%.0f,%d\n", (unsigned long long)s.fusion_bytes,
           (double)s.gather_ns / 1e3, n_before);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    int n = argc - 2; /* the tensors, and a flag */
    static double times[MAX_STEPS];
    static struct grad g[MAX_TENSORS];
    size_t bytes = 0;

    if (n < 2 || n > MAX_TENSORS || atoi(argv[2]) < 1 || atoi(argv[2]) > MAX_STEPS) {
        fprintf(stderr, "usage: %s BACKWARD_MS STEPS COUNT...\n", argv[0]);
        return 2;
    }
    for (int i = 0; i < n; i++) {
        (void)snprintf(g[i].name, sizeof(g[i].name), "grad.%d", i);
        g[i].n = i + 1 < n ? strtoll(argv[i + 3], NULL, 10) : 1;
        if (g[i].n < 1
            || posix_memalign((void **)&g[i].x, 64, (size_t)g[i].n * sizeof(float))
                   != 0) {
            fprintf(stderr, "%s: not a count, or too many elements\n", g[i].name);
            return 1;
        }
        bytes += (size_t)g[i].n * sizeof(float);
    }
    double backward_us = strtod(argv[1], NULL) * 1e3;
    int n_steps = atoi(argv[2]);

    capi_must(hvd_init(NULL), "hvd_init");
    checked_step(g, n, backward_us);
    int n_before = grads_tune(g, n, backward_us);
    grads_step(g, n, backward_us); /* the last settings come to their plan */
    for (int k = 0; k < 4; k++)
        grads_step(g, n, backward_us);
    double start = now_us();
    for (int k = 0; k < n_steps; k++) {
        double a = now_us();

        grads_step(g, n, backward_us);
        times[k] = now_us() - a;
    }
    double mean = (now_us() - start) / n_steps;
    capi_max(NULL, times, n_steps);
    capi_max(NULL, &mean, 1);
    if (hvd_rank() == 0)
        times_report(times, n_steps, bytes, mean, n_before);
    checked_step(g, n, backward_us);
    (void)hvd_shutdown(); /* bounded; the figures are out */
    for (int i = 0; i < n; i++)
        free(g[i].x);
    return 0;
}
