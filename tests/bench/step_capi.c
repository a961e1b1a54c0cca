/* SPDX-License-Identifier: Apache-2.0 */
/* A training step's gradients through libhvd.so's C API, started by horovodrun:
 *
 *     step_capi NAME COUNT...
 *
 * one float32 tensor of COUNT elements each, averaged in place. A step submits all of
 * them by name in this order and then waits for each; its time is the slowest rank's,
 * and steps follow each other as in training, without barriers. run.py passes the
 * gradients of ResNet-50 (resnet50.py). A wrong average in the first step is fatal. */

#include "tests/bench/capi.h"
#include "tests/bench/timing.h"

enum { WARM_UP = 10, STEPS = 60, MAX_TENSORS = 1000 };

struct grad {
    char name[16];
    float *x;
    int64_t n;
    hvd_handle h;
};

static void grads_step(struct grad *g, int n)
{
    for (int i = 0; i < n; i++) {
        struct hvd_tensor t = capi_tensor(g[i].name, g[i].x, HVD_FLOAT32, &g[i].n);
        capi_must(hvd_allreduce_async(&t, HVD_AVERAGE, 1.0, 1.0, 0, &g[i].h),
                  g[i].name);
    }
    for (int i = 0; i < n; i++) {
        capi_must(hvd_wait(g[i].h, -1), g[i].name);
        capi_must(hvd_release(g[i].h), g[i].name);
    }
}

/* Every rank's gradient i is its rank plus i, so that the average is known exactly. */
static void first_step(struct grad *g, int n)
{
    float mean = (float)(hvd_size() - 1) / 2;
    for (int i = 0; i < n; i++)
        for (int64_t j = 0; j < g[i].n; j++)
            g[i].x[j] = (float)hvd_rank() + (float)i;
    grads_step(g, n);
    for (int i = 0; i < n; i++)
        for (int64_t j = 0; j < g[i].n; j++)
            if (g[i].x[j] != mean + (float)i) {
                fprintf(stderr, "rank %d: wrong average in %s at %lld of %lld\n",
                        hvd_rank(), g[i].name, (long long)j, (long long)g[i].n);
                exit(1);
            }
}

int main(int argc, char **argv)
{
    int n = argc - 2;
    double times[STEPS], mean;
    size_t bytes = 0;
    if (n < 1 || n > MAX_TENSORS) {
        fprintf(stderr, "usage: %s NAME COUNT...   (1 to %d tensors)\n", argv[0],
                MAX_TENSORS);
        return 2;
    }
    struct grad *g = calloc((size_t)n, sizeof(*g));
    if (!g)
        return 1;
    for (int i = 0; i < n; i++) {
        (void)snprintf(g[i].name, sizeof(g[i].name), "grad.%d", i);
        g[i].n = strtoll(argv[i + 2], NULL, 10);
        if (g[i].n < 1
            || posix_memalign((void **)&g[i].x, 64, (size_t)g[i].n * sizeof(float))
                   != 0) { /* aligned as by frameworks */
            fprintf(stderr, "%s: %s elements: not a count, or too many\n", g[i].name,
                    argv[i + 2]);
            return 1;
        }
        bytes += (size_t)g[i].n * sizeof(float);
    }
    capi_must(hvd_init(NULL), "hvd_init");
    first_step(g, n);
    for (int k = 0; k < WARM_UP; k++)
        grads_step(g, n);
    double start = now_us();
    for (int k = 0; k < STEPS; k++) {
        double a = now_us();
        grads_step(g, n);
        times[k] = now_us() - a;
    }
    mean = (now_us() - start) / STEPS;
    capi_max(NULL, times, STEPS);
    capi_max(NULL, &mean, 1);
    if (hvd_rank() == 0)
        print_row(argv[1], hvd_size(), bytes, times, STEPS, mean);
    (void)hvd_shutdown(); /* bounded; the figures are out */
    for (int i = 0; i < n; i++)
        free(g[i].x);
    free(g);
    return 0;
}
