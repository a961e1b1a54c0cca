/* SPDX-License-Identifier: Apache-2.0 */
/* Each rank of a ring exchanges data with its neighbours through libhvd.so's C API,
 * started by horovodrun:
 *
 *     bench_ring NAME          sends to the next rank, receives from the one before it
 *     bench_ring NAME both     sends to both and receives from both
 *
 * Prints timing.h's lines:
 *
 *   median, min  each iteration: barrier (not timed), one exchange; its time is the
 *                slowest rank's
 *   mean         N exchanges in a row without barriers, total / N, slowest rank
 *
 * A wrong value is fatal. */
#include <stdint.h>
#include <string.h>

#include "tests/bench/capi.h"
#include "tests/bench/timing.h"

struct ring {
    int rank, size, n_ways;
    float *out, *in[2];
    int64_t n;
};

/* The neighbour in this direction: 0: the next rank. */
static int ring_neighbour(const struct ring *r, int way)
{
    return (r->rank + (way == 0 ? 1 : r->size - 1)) % r->size;
}

static void capi_finish(hvd_handle h, const char *what)
{
    capi_must(hvd_wait(h, -1), what);
    capi_must(hvd_release(h), what);
}

static void ring_barrier(void)
{
    struct hvd_tensor t = {.size_bytes = sizeof(t), .name = "barrier", .device = -1};
    hvd_handle h = 0;

    capi_must(hvd_barrier_async(&t, 0, &h), "barrier");
    capi_finish(h, "barrier");
}

static void ring_exchange(struct ring *r)
{
    hvd_handle sent[2] = {0}, received[2] = {0};

    for (int way = 0; way < r->n_ways; way++) {
        const char *name = way == 0 ? "forth" : "back";
        struct hvd_tensor out = capi_tensor(name, r->out, HVD_FLOAT32, &r->n);
        struct hvd_tensor in = capi_tensor(name, r->in[way], HVD_FLOAT32, &r->n);

        capi_must(hvd_send_async(&out, ring_neighbour(r, way), &sent[way]), "send");
        capi_must(hvd_recv_async(&in, ring_neighbour(r, !way), &received[way]),
                  "receive");
    }
    for (int way = 0; way < r->n_ways; way++) {
        capi_finish(sent[way], "send");
        capi_finish(received[way], "receive");
    }
}

static int ring_is_right(struct ring *r)
{
    for (int64_t i = 0; i < r->n; i++)
        r->out[i] = (float)(r->rank + 1) + (float)(i % 7);
    ring_exchange(r);
    for (int way = 0; way < r->n_ways; way++)
        for (int64_t i = 0; i < r->n; i++)
            if (r->in[way][i]
                != (float)(ring_neighbour(r, !way) + 1) + (float)(i % 7)) {
                fprintf(stderr, "rank %d: wrong value at %lld of %lld\n", r->rank,
                        (long long)i, (long long)r->n);
                return 0;
            }
    return 1;
}

static int ring_measure(struct ring *r, const char *name, size_t bytes, int iters)
{
    double *t = calloc((size_t)iters, sizeof(*t)), a, mean;
    void *v[3];

    if (!t)
        return 1;
    for (int i = 0; i < 3; i++)
        if (posix_memalign(&v[i], 4096, bytes) != 0)
            abort();
    r->out = v[0];
    r->in[0] = v[1];
    r->in[1] = v[2];
    r->n = (int64_t)(bytes / sizeof(float));
    for (int i = 0; i < 3; i++)
        if (!ring_is_right(r))
            exit(1);
    for (int i = 0; i < iters; i++) {
        ring_barrier();
        a = now_us();
        ring_exchange(r);
        t[i] = now_us() - a;
    }
    ring_barrier();
    capi_max(NULL, t, iters);
    ring_barrier();
    a = now_us();
    for (int i = 0; i < iters; i++)
        ring_exchange(r);
    mean = (now_us() - a) / iters;
    capi_max(NULL, &mean, 1);
    if (r->rank == 0)
        print_row(name, r->size, bytes, t, iters, mean);
    free(t);
    for (int i = 0; i < 3; i++)
        free(v[i]);
    return 0;
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {4096, 65536, 1 << 20, 16 << 20};
    static const int iters[] = {300, 200, 60, 12};
    struct ring r = {0};

    capi_must(hvd_init(NULL), "hvd_init");
    r.rank = hvd_rank();
    r.size = hvd_size();
    r.n_ways = argc > 2 && strcmp(argv[2], "both") == 0 ? 2 : 1;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
        if (ring_measure(&r, argc > 1 ? argv[1] : "ring", sizes[i], iters[i]) != 0)
            return 1;
    (void)hvd_shutdown(); /* bounded; the figures are out */
    return 0;
}
