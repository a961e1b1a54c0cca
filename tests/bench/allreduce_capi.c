/* SPDX-License-Identifier: Apache-2.0 */
/* Allreduce through libhvd.so's C API, started by horovodrun: hvd_allreduce_async +
 * hvd_wait under measure.h. What it costs beyond allreduce_backend is queue,
 * negotiation and wake-up. */
#include "tests/bench/capi.h"
#include "tests/bench/measure.h"

static void capi_finish(hvd_handle h, const char *what)
{
    capi_must(hvd_wait(h, -1), what);
    capi_must(hvd_release(h), what);
}

static void capi_allreduce(void *ctx, float *x, size_t n)
{
    int64_t shape = (int64_t)n;
    struct hvd_tensor t = capi_tensor("sum", x, HVD_FLOAT32, &shape);
    hvd_handle h = 0;
    (void)ctx;
    capi_must(hvd_allreduce_async(&t, HVD_SUM, 1.0, 1.0, 0, &h), "allreduce");
    capi_finish(h, "allreduce");
}

static void capi_barrier(void *ctx)
{
    struct hvd_tensor t = {.size_bytes = sizeof(t), .name = "barrier", .device = -1};
    hvd_handle h = 0;
    (void)ctx;
    capi_must(hvd_barrier_async(&t, 0, &h), "barrier");
    capi_finish(h, "barrier");
}

int main(int argc, char **argv)
{
    capi_must(hvd_init(NULL), "hvd_init");
    struct peer_ops p = {.name = argc > 1 ? argv[1] : "libhvd",
                         .rank = hvd_rank(),
                         .size = hvd_size(),
                         .allreduce = capi_allreduce,
                         .barrier = capi_barrier,
                         .max = capi_max};
    int rc = peer_measure(&p);
    (void)hvd_shutdown(); /* bounded; the figures are out */
    return rc;
}
