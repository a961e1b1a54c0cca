/* SPDX-License-Identifier: Apache-2.0 */
/* A rank that computes by sleeping, so that ranks that share a processor do not slow each
 * other down:
 *
 *     launch-pace STEP_MS BATCHES RANK PERCENT FILE
 *
 * In a step it sleeps for STEP_MS (RANK for PERCENT more) and submits BATCHES tensors
 * meanwhile, the last one at the end; then it waits for all. It ends when rank 0 sees
 * FILE. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "hvd.h"

enum { MAX_BATCHES = 16, NUMBERS = 1024 };

static void pace_check(int rc)
{
    if (rc >= 0)
        return;
    (void)fprintf(stderr, "launch-pace: %s\n", hvd_last_error());
    exit(7);
}

static double pace_now_s(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void pace_sleep_until(double s)
{
    struct timespec t = {.tv_sec = (time_t)s};

    t.tv_nsec = (long)((s - (double)t.tv_sec) * 1e9);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) != 0)
        ;
}

/* Whether any rank says that this is the last step. */
static int pace_step(double step_s, int n, int is_last)
{
    static float data[MAX_BATCHES][NUMBERS];
    const int64_t shape[1] = {NUMBERS};
    const double begin_s = pace_now_s();
    hvd_handle h[MAX_BATCHES];
    char name[32];

    for (int i = 0; i < n; i++) {
        struct hvd_tensor t = {.size_bytes = sizeof(t),
                               .name = name,
                               .data = data[i],
                               .output = data[i],
                               .dtype = HVD_FLOAT32,
                               .ndim = 1,
                               .shape = shape,
                               .device = -1};

        (void)snprintf(name, sizeof(name), "tensor/%d", i);
        data[i][0] = (float)is_last;
        pace_sleep_until(begin_s + step_s * (i + 1) / n);
        pace_check(hvd_allreduce_async(&t, HVD_SUM, 1, 1, 0, &h[i]));
    }
    for (int i = 0; i < n; i++) {
        pace_check(hvd_wait(h[i], -1));
        pace_check(hvd_release(h[i]));
    }
    return data[0][0] > 0;
}

int main(int argc, char **argv)
{
    double step_s;
    int n, is_last = 0;

    if (argc != 6 || (n = atoi(argv[2])) < 1 || n > MAX_BATCHES) {
        (void)fprintf(stderr, "usage: launch-pace STEP_MS BATCHES RANK PERCENT FILE\n");
        return 2;
    }
    pace_check(hvd_init(NULL));
    step_s = atof(argv[1]) / 1e3;
    if (hvd_rank() == atoi(argv[3]))
        step_s *= 1 + atof(argv[4]) / 100;
    while (!is_last)
        is_last = pace_step(step_s, n, hvd_rank() == 0 && access(argv[5], F_OK) == 0);
    pace_check(hvd_shutdown());
    return 0;
}
