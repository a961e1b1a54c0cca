/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors on the device in memory (fake_device.h), in a stream of the caller. */
#ifndef TESTS_UNIT_HVD_GPU_H
#define TESTS_UNIT_HVD_GPU_H

#include "tests/unit/fake_device.h"
#include "tests/unit/hvd_world.h"

#define STREAM ((void *)(uintptr_t)0x51)

static inline struct hvd_tensor
on_gpu(const char *name, int dtype, const void *data, void *out, const int64_t *n)
{
    struct hvd_tensor t = tensor_1d(name, dtype, data, out, n);

    t.device = 0;
    t.stream = STREAM;
    return t;
}

static inline int sum_on_gpu(const char *name, float *v, int64_t n, hvd_handle *h)
{
    struct hvd_tensor t = on_gpu(name, HVD_FLOAT32, v, v, &n);

    return hvd_allreduce_async(&t, HVD_SUM, 1, 1, 0, h);
}

#endif
