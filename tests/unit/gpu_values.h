/* SPDX-License-Identifier: Apache-2.0 */
/* Elements of every type as numbers. */
#ifndef TESTS_UNIT_GPU_VALUES_H
#define TESTS_UNIT_GPU_VALUES_H

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "runtime/core/compress/cast.h"
#include "runtime/core/half.h"

static const enum dtype float_types[] = {DT_F32, DT_F64, DT_F16, DT_BF16};

static inline void value_put(enum dtype t, void *v, uint64_t i, double x)
{
    const float f = (float)x;
    const uint16_t h = t == DT_F16 ? f16_of_f32(f) : bf16_of_f32(f);
    const int64_t n = cast_is_float(t) ? 0 : t == DT_BOOL ? x != 0 : (int64_t)x;
    const void *from = t == DT_F64        ? (const void *)&x
                       : t == DT_F32      ? (const void *)&f
                       : cast_is_float(t) ? (const void *)&h
                                          : &n; /* little endian */

    memcpy((uint8_t *)v + i * dtype_size(t), from, dtype_size(t));
}

static inline double value_get(enum dtype t, const void *v, uint64_t i)
{
    uint64_t u = 0;
    double d;
    float f;

    memcpy(&u, (const uint8_t *)v + i * dtype_size(t), dtype_size(t));
    memcpy(&d, &u, sizeof(d));
    memcpy(&f, &u, sizeof(f));
    switch (t) {
    case DT_U8:
    case DT_BOOL:
    case DT_U16:
        return (double)u;
    case DT_I8:
        return (int8_t)u;
    case DT_I16:
        return (int16_t)u;
    case DT_I32:
        return (int32_t)u;
    case DT_I64:
        return (double)(int64_t)u;
    case DT_F16:
        return (double)f32_of_f16((uint16_t)u);
    case DT_BF16:
        return (double)f32_of_bf16((uint16_t)u);
    case DT_F32:
        return (double)f;
    case DT_F64:
        return d;
    case DT_COUNT:
        break;
    }
    return NAN;
}

/* Equal, but for what a NaN carries, which differs on a device. */
static inline bool value_is_same(enum dtype t, const void *a, const void *b, uint64_t i)
{
    const size_t size = dtype_size(t);

    return memcmp((const uint8_t *)a + i * size, (const uint8_t *)b + i * size, size)
               == 0
           || (isnan(value_get(t, a, i)) && isnan(value_get(t, b, i)));
}

#endif
