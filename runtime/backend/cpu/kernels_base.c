/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for any CPU the build targets (SSE2 on x86-64). See kernels.inc.h. Pure.
 */
#include <stddef.h>
#include <stdint.h>

#include "runtime/backend/cpu/half.h"

static void widen_f16(float *restrict d, const uint16_t *restrict s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        d[i] = f32_of_f16(s[i]);
}

static void narrow_f16(uint16_t *restrict d, const float *restrict s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        d[i] = f16_of_f32(s[i]);
}

#define TABLE kernels_base
#include "runtime/backend/cpu/kernels.inc.h"
