/* SPDX-License-Identifier: Apache-2.0 */
/* The portable CRC32C, eight bytes at a time with eight tables, and the choice of an
 * implementation for this CPU. The CPU is queried directly, as in reduce.c.
 *
 * tables[k][b] is the remainder of byte b followed by k zero bytes. It is linear in the
 * bits of b, so a table is written as the remainders of its eight bits. Called by
 * net_block.c. */
#include "runtime/backend/cpu/crc32c.h"

#include <stdbool.h>
#include <string.h>

#define BIT(b, i, v) ((b) >> (i)&1 ? (v) : 0u)
#define BYTE(b, a0, a1, a2, a3, a4, a5, a6, a7)                                        \
    (BIT(b, 0, a0) ^ BIT(b, 1, a1) ^ BIT(b, 2, a2) ^ BIT(b, 3, a3) ^ BIT(b, 4, a4)     \
     ^ BIT(b, 5, a5) ^ BIT(b, 6, a6) ^ BIT(b, 7, a7))
#define BYTES_4(b, ...)                                                                \
    BYTE(b, __VA_ARGS__), BYTE((b) + 1, __VA_ARGS__), BYTE((b) + 2, __VA_ARGS__),      \
        BYTE((b) + 3, __VA_ARGS__)
#define BYTES_16(b, ...)                                                               \
    BYTES_4(b, __VA_ARGS__), BYTES_4((b) + 4, __VA_ARGS__),                            \
        BYTES_4((b) + 8, __VA_ARGS__), BYTES_4((b) + 12, __VA_ARGS__)
#define BYTES_64(b, ...)                                                               \
    BYTES_16(b, __VA_ARGS__), BYTES_16((b) + 16, __VA_ARGS__),                         \
        BYTES_16((b) + 32, __VA_ARGS__), BYTES_16((b) + 48, __VA_ARGS__)
#define TABLE(...)                                                                     \
    {                                                                                  \
        BYTES_64(0, __VA_ARGS__), BYTES_64(64, __VA_ARGS__),                           \
            BYTES_64(128, __VA_ARGS__), BYTES_64(192, __VA_ARGS__)                     \
    }

static const uint32_t tables[8][256] = {
    TABLE(0xf26b8303,
          0xe13b70f7,
          0xc79a971f,
          0x8ad958cf,
          0x105ec76f,
          0x20bd8ede,
          0x417b1dbc,
          0x82f63b78),
    TABLE(0x13a29877,
          0x274530ee,
          0x4e8a61dc,
          0x9d14c3b8,
          0x3fc5f181,
          0x7f8be302,
          0xff17c604,
          0xfbc3faf9),
    TABLE(0xa541927e,
          0x4f6f520d,
          0x9edea41a,
          0x38513ec5,
          0x70a27d8a,
          0xe144fb14,
          0xc76580d9,
          0x8b277743),
    TABLE(0xdd45aab8,
          0xbf672381,
          0x7b2231f3,
          0xf64463e6,
          0xe964b13d,
          0xd725148b,
          0xaba65fe7,
          0x52a0c93f),
    TABLE(0x38116fac,
          0x7022df58,
          0xe045beb0,
          0xc5670b91,
          0x8f2261d3,
          0x1ba8b557,
          0x37516aae,
          0x6ea2d55c),
    TABLE(0xef306b19,
          0xdb8ca0c3,
          0xb2f53777,
          0x6006181f,
          0xc00c303e,
          0x85f4168d,
          0x0e045beb,
          0x1c08b7d6),
    TABLE(0x68032cc8,
          0xd0065990,
          0xa5e0c5d1,
          0x4e2dfd53,
          0x9c5bfaa6,
          0x3d5b83bd,
          0x7ab7077a,
          0xf56e0ef4),
    TABLE(0x493c7d27,
          0x9278fa4e,
          0x211d826d,
          0x423b04da,
          0x847609b4,
          0x0d006599,
          0x1a00cb32,
          0x34019664),
};

uint32_t crc32c_portable(uint32_t crc, const void *p, size_t n)
{
    const uint8_t *in = p;

    for (crc = ~crc; n >= 8; n -= 8, in += 8) {
        crc ^= (uint32_t)in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16
               | (uint32_t)in[3] << 24;
        crc = tables[7][crc & 255] ^ tables[6][crc >> 8 & 255]
              ^ tables[5][crc >> 16 & 255] ^ tables[4][crc >> 24] ^ tables[3][in[4]]
              ^ tables[2][in[5]] ^ tables[1][in[6]] ^ tables[0][in[7]];
    }
    for (; n > 0; n--)
        crc = crc >> 8 ^ tables[0][(crc ^ *in++) & 255];
    return ~crc;
}

#if defined(__x86_64__)

#include <cpuid.h>

static bool cpu_has_crc32c(void)
{
    const unsigned needed = 1u << 1 | 1u << 20; /* PCLMULQDQ, SSE4.2 */
    unsigned a, b, c, d;

    return __get_cpuid(1, &a, &b, &c, &d) && (c & needed) == needed;
}

#elif defined(__aarch64__)

#include <sys/auxv.h>

static bool cpu_has_crc32c(void)
{
    const unsigned long needed = 1ul << 4 | 1ul << 7; /* HWCAP_PMULL, HWCAP_CRC32 */

    return (getauxval(AT_HWCAP) & needed) == needed;
}

#else

static bool cpu_has_crc32c(void)
{
    return false;
}

#endif

crc32c_fn crc32c_best(void)
{
    crc32c_fn fast = crc32c_x86 ? crc32c_x86 : crc32c_arm;

    return fast && cpu_has_crc32c() ? fast : crc32c_portable;
}
