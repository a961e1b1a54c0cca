/* SPDX-License-Identifier: Apache-2.0 */
/* CRC32C by ARMv8's CRC32 and PMULL instructions. module.mk compiles this file with
 * -march=armv8-a+crc+crypto; on other machines it is empty. Only crc32c.c may use it,
 * after checking the CPU. */
#include "runtime/backend/cpu/crc32c.h"

#if defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)                               \
    && defined(__ARM_FEATURE_CRYPTO)

#include <arm_acle.h>
#include <arm_neon.h>

static inline uint64_t step_u64(uint64_t crc, uint64_t word)
{
    return __crc32cd((uint32_t)crc, word);
}

static inline uint32_t step_u8(uint32_t crc, uint8_t byte)
{
    return __crc32cb(crc, byte);
}

static inline uint64_t crc_multiply(uint32_t a, uint32_t b)
{
    return (uint64_t)vmull_p64((poly64_t)a, (poly64_t)b);
}

#include "runtime/backend/cpu/crc32c_lanes.inc.h"

const crc32c_fn crc32c_arm = crc32c_lanes;

#else

const crc32c_fn crc32c_arm = NULL;

#endif
