/* SPDX-License-Identifier: Apache-2.0 */
/* The digest has eight lanes, so that eight multiplications are under way at a time and
 * memory is the limit. Word i goes into lane i % 8:
 *
 *   x = (lane ^ word) * ODD;  lane = x ^ (x >> 29)
 *
 * Each step is a bijection of the lane for a given word and of the word for a given lane,
 * so two inputs that differ in one word have different lanes at the end, and so have the
 * digest: the eight lanes are joined by the same step. The shift brings the high bits of
 * a product down; otherwise a change of two sign bits would cancel out. The last words
 * are filled up with zeros, and the length is the last word of all.
 *
 * Called by the Python extension (ext/replica.c) and by engine/replay.c. */
#include "runtime/core/digest.h"

#include <string.h>

#define ODD UINT64_C(0x9E3779B97F4A7C15) /* 2^64 / the golden ratio */

enum { LANES = 8, BLOCK = LANES * sizeof(uint64_t), PART = 4096 };

static inline uint64_t lane_step(uint64_t lane, uint64_t word)
{
    lane = (lane ^ word) * ODD;
    return lane ^ (lane >> 29);
}

static void block_add(uint64_t lane[LANES], const unsigned char *p)
{
    uint64_t word[LANES];

    memcpy(word, p, sizeof(word));
    for (int i = 0; i < LANES; i++)
        lane[i] = lane_step(lane[i], word[i]);
}

uint64_t digest_of(const void *data, size_t n)
{
    const unsigned char *p = data;
    unsigned char last[BLOCK] = {0};
    uint64_t lane[LANES], all = ODD;
    size_t left = n;

    for (int i = 0; i < LANES; i++)
        lane[i] = ODD + (uint64_t)i;
    for (; left >= BLOCK; left -= BLOCK, p += BLOCK)
        block_add(lane, p);
    if (left > 0) {
        memcpy(last, p, left);
        block_add(lane, last);
    }
    for (int i = 0; i < LANES; i++)
        all = lane_step(all, lane[i]);
    all = lane_step(all, n);
    return all ^ (all >> 32);
}

bool difference_find(
    const void *a, const void *b, uint64_t n, size_t size, struct difference *ret)
{
    const unsigned char *x = a, *y = b;
    const uint64_t part = size > 0 && size < PART ? PART / size : 1;
    struct difference found = {0};

    for (uint64_t at = 0; at < n; at += part) {
        uint64_t k = n - at < part ? n - at : part;

        if (memcmp(x + at * size, y + at * size, (size_t)k * size) == 0)
            continue;
        for (uint64_t i = at; i < at + k; i++)
            if (memcmp(x + i * size, y + i * size, size) != 0 && found.n++ == 0)
                found.at = i;
    }
    if (found.n == 0)
        return false;
    *ret = found;
    return true;
}
