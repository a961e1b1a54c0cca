/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs on the C API share: errors end the program, and the largest of all
 * ranks' figures. Included by one .c file a program. */
#ifndef TESTS_BENCH_CAPI_H
#define TESTS_BENCH_CAPI_H

#include <stdio.h>
#include <stdlib.h>

#include "hvd.h"

static void capi_must(int rc, const char *what)
{
    if (rc >= 0)
        return;
    fprintf(stderr, "%s: %s\n", what, hvd_last_error());
    exit(1);
}

static struct hvd_tensor
capi_tensor(const char *name, void *data, int dtype, const int64_t *n)
{
    return (struct hvd_tensor){.size_bytes = sizeof(struct hvd_tensor),
                               .name = name,
                               .data = data,
                               .output = data,
                               .dtype = dtype,
                               .ndim = 1,
                               .shape = n,
                               .device = -1};
}

static void capi_max(void *ctx, double *x, int n)
{
    int64_t shape = n, out_shape[HVD_MAX_DIMS];
    struct hvd_tensor t = capi_tensor("max", x, HVD_FLOAT64, &shape);
    hvd_handle h = 0;
    void *all;
    int ndim;
    (void)ctx;
    capi_must(hvd_allgather_async(&t, NULL, NULL, 0, &h), "allgather");
    capi_must(hvd_wait(h, -1), "allgather");
    capi_must(hvd_result(h, &all, &ndim, out_shape), "allgather");
    const double *v = all;
    for (int64_t i = 0; i < out_shape[0]; i++)
        if (v[i] > x[i % n])
            x[i % n] = v[i];
    capi_must(hvd_release(h), "allgather");
}

#endif
