/* SPDX-License-Identifier: Apache-2.0 */
/* CRC32C by a CPU's instruction, included by crc32c_x86.c and crc32c_arm.c, which
 * define
 *
 *   step_u8(crc, byte), step_u64(crc, word)   the instruction
 *   crc_multiply(a, b)                            carry-less product of 32 x 32 bits
 *
 * The instruction takes three cycles, and one can begin in each: three runs of bytes
 * ("lanes") are computed at once. A lane's remainder is moved over the n bytes that
 * follow the lane by a multiplication by x^(8n - 33); step_u64() reduces the product and
 * multiplies by x^33: 32 for its own length, 1 for the bit order. */
#include <string.h>

static uint32_t lane_move(uint32_t crc, uint32_t power)
{
    return (uint32_t)step_u64(0, crc_multiply(crc, power));
}

static uint64_t lane_word(const uint8_t *p)
{
    uint64_t w;

    memcpy(&w, p, sizeof(w));
    return w;
}

/* Three lanes of n bytes. over_1, over_2: the powers for n and 2 n bytes. */
static inline uint32_t
lanes_add(uint32_t crc, const uint8_t *p, size_t n, uint32_t over_1, uint32_t over_2)
{
    uint64_t a = crc, b = 0, c = 0;

    for (size_t i = 0; i < n; i += 8) {
        a = step_u64(a, lane_word(p + i));
        b = step_u64(b, lane_word(p + n + i));
        c = step_u64(c, lane_word(p + 2 * n + i));
    }
    return lane_move((uint32_t)a, over_2) ^ lane_move((uint32_t)b, over_1)
           ^ (uint32_t)c;
}

static uint32_t crc32c_lanes(uint32_t crc, const void *p, size_t n)
{
    enum { LONG = 4096, SHORT = 256 };
    const uint8_t *in = p;

    for (crc = ~crc; n >= 3 * LONG; n -= 3 * LONG, in += 3 * LONG)
        crc = lanes_add(crc, in, LONG, 0x82f89c77, 0x54a86326);
    for (; n >= 3 * SHORT; n -= 3 * SHORT, in += 3 * SHORT)
        crc = lanes_add(crc, in, SHORT, 0xb9e02b86, 0xdd7e3b0c);
    for (; n >= 8; n -= 8, in += 8)
        crc = (uint32_t)step_u64(crc, lane_word(in));
    for (; n > 0; n--)
        crc = step_u8(crc, *in++);
    return ~crc;
}
