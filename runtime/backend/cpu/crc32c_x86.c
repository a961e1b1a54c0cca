/* SPDX-License-Identifier: Apache-2.0 */
/* CRC32C by SSE4.2 and PCLMULQDQ. module.mk compiles this file with -msse4.2 -mpclmul;
 * on other machines it is empty. Only crc32c.c may use it, after checking the CPU. */
#include "runtime/backend/cpu/crc32c.h"

#if defined(__SSE4_2__) && defined(__PCLMUL__)

#include <immintrin.h>

static inline uint64_t step_u64(uint64_t crc, uint64_t word)
{
    return _mm_crc32_u64(crc, word);
}

static inline uint32_t step_u8(uint32_t crc, uint8_t byte)
{
    return _mm_crc32_u8(crc, byte);
}

static inline uint64_t crc_multiply(uint32_t a, uint32_t b)
{
    return (uint64_t)_mm_cvtsi128_si64(
        _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)a), _mm_cvtsi32_si128((int)b), 0));
}

#include "runtime/backend/cpu/crc32c_lanes.inc.h"

const crc32c_fn crc32c_x86 = crc32c_lanes;

#else

const crc32c_fn crc32c_x86 = NULL;

#endif
