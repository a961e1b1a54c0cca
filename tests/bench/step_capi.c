/* SPDX-License-Identifier: Apache-2.0 */
/* Training steps' gradients through libhvd.so's C API:
 *
 *     step_capi NAME BACKWARD_MS STEPS COUNT...
 *
 * Each COUNT is a float32 tensor, averaged in place. In a step tensor i is submitted at
 * its share of BACKWARD_MS (the time that backward would have computed by then goes by
 * sleeping, so that the processors are the runtime's; 0: all at once); then all are
 * waited for. A step's time is the slowest rank's, and steps follow each other as in
 * training, without barriers. With HOROVOD_AUTOTUNE=1 it warms up until rank 0 has its
 * settings. Then STEPS steps are measured; rank 0 prints timing.h's line and
 *
 *     USED,fusion_bytes,window_us,steps_before
 *
 * A wrong average in the first or the last step is fatal. run.py and tune.py pass the
 * gradients of ResNet-50 (resnet50.py). */
#include "tests/bench/capi.h"
#include "tests/bench/timing.h"

enum { WARM_UP = 10, MAX_TENSORS = 1000, MAX_STEPS = 1000, MAX_TUNING = 5000 };

struct grad {
    char name[16];
    float *x;
    int64_t n;
    hvd_handle h;
};

/* Returns the bytes of all. */
static size_t grads_init(struct grad *g, int n, char **counts)
{
    size_t bytes = 0;

    for (int i = 0; i < n; i++) {
        (void)snprintf(g[i].name, sizeof(g[i].name), "grad.%d", i);
        g[i].n = strtoll(counts[i], NULL, 10);
        if (g[i].n < 1
            || posix_memalign((void **)&g[i].x, 64, (size_t)g[i].n * sizeof(float))
                   != 0) { /* aligned as by frameworks */
            fprintf(stderr, "%s: %s elements: not a count, or too many\n", g[i].name,
                    counts[i]);
            exit(1);
        }
        bytes += (size_t)g[i].n * sizeof(float);
    }
    return bytes;
}

static void sleep_until(double us)
{
    struct timespec t = {.tv_sec = (time_t)(us / 1e6)};

    t.tv_nsec = (long)((us - (double)t.tv_sec * 1e6) * 1e3);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) != 0)
        ;
}

static void grads_step(struct grad *g, int n, double backward_us)
{
    double begin = now_us();

    for (int i = 0; i < n; i++) {
        struct hvd_tensor t = capi_tensor(g[i].name, g[i].x, HVD_FLOAT32, &g[i].n);
        double due = begin + backward_us * (i + 1) / n;

        if (due > now_us() + 60) /* what a sleep lasts at least */
            sleep_until(due);
        capi_must(hvd_allreduce_async(&t, HVD_AVERAGE, 1.0, 1.0, 0, &g[i].h),
                  g[i].name);
    }
    for (int i = 0; i < n; i++) {
        capi_must(hvd_wait(g[i].h, -1), g[i].name);
        capi_must(hvd_release(g[i].h), g[i].name);
    }
}

/* Every rank's elements are its rank plus a small number, so that averages are exact. */
static void checked_step(struct grad *g, int n, double backward_us)
{
    float mean = (float)(hvd_size() - 1) / 2;

    for (int i = 0; i < n; i++)
        for (int64_t j = 0; j < g[i].n; j++)
            g[i].x[j] = (float)hvd_rank() + (float)(i + j % 5);
    grads_step(g, n, backward_us);
    for (int i = 0; i < n; i++)
        for (int64_t j = 0; j < g[i].n; j++)
            if (g[i].x[j] != mean + (float)(i + j % 5)) {
                fprintf(stderr, "rank %d: wrong average in %s at %lld of %lld\n",
                        hvd_rank(), g[i].name, (long long)j, (long long)g[i].n);
                exit(1);
            }
}

static struct hvd_stats capi_stats(void)
{
    struct hvd_stats s = {.size_bytes = sizeof(s)};

    capi_must(hvd_stats(&s), "stats");
    return s;
}

/* All ranks end tuning at the same step: an element of the last tensor is rank 0's flag.
 * Returns the number of steps. */
static int grads_tune(struct grad *g, int n, double backward_us)
{
    float *flag = g[n - 1].x;
    int k = 0;

    do {
        *flag = capi_stats().is_tuning ? 1 : 0;
        grads_step(g, n, backward_us);
        k++;
    } while (k < WARM_UP || (*flag > 0 && k < MAX_TUNING));
    for (int i = 0; i < 5; i++) /* the last settings come to their plan */
        grads_step(g, n, backward_us);
    return k;
}

int main(int argc, char **argv)
{
    static struct grad g[MAX_TENSORS];
    static double times[MAX_STEPS];
    const int n = argc - 4, n_steps = argc > 3 ? atoi(argv[3]) : 0;

    if (n < 1 || n > MAX_TENSORS || n_steps < 1 || n_steps > MAX_STEPS) {
        fprintf(stderr, "usage: %s NAME BACKWARD_MS STEPS COUNT...\n", argv[0]);
        return 2;
    }
    const double backward_us = strtod(argv[2], NULL) * 1e3;
    const size_t bytes = grads_init(g, n, argv + 4);

    capi_must(hvd_init(NULL), "hvd_init");
    checked_step(g, n, backward_us);
    const int n_before = grads_tune(g, n, backward_us);
    double start = now_us();
    for (int k = 0; k < n_steps; k++) {
        double a = now_us();

        grads_step(g, n, backward_us);
        times[k] = now_us() - a;
    }
    double mean = (now_us() - start) / n_steps;
    capi_max(NULL, times, n_steps);
    capi_max(NULL, &mean, 1);
    if (hvd_rank() == 0) {
        const struct hvd_stats s = capi_stats();
        print_row(argv[1], hvd_size(), bytes, times, n_steps, mean);
        printf("USED,%llu,%.0f,%d\n", (unsigned long long)s.fusion_bytes,
               (double)s.gather_ns / 1e3, n_before);
    }
    checked_step(g, n, backward_us);
    (void)hvd_shutdown(); /* bounded; the figures are out */
    for (int i = 0; i < n; i++)
        free(g[i].x);
    return 0;
}
