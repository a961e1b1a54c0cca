/* SPDX-License-Identifier: Apache-2.0 */
/* Block-wise symmetric quantisation, as in Dettmers' "8-bit approximations for
 * parallelism in deep learning" (2016) and the block scales of his 8-bit optimizers
 * (2022), with the residual fed back into the next step as in Seide et al. (2014) and
 * Karimireddy et al. (2019).
 *
 * All work is done a block at a time on the stack, so a tensor is read once and written
 * once whatever its type. Rounding is to nearest even by adding 1.5 * 2^23, which
 * vectorises everywhere and leaves the integer in the low bits; stochastic rounding is
 * not wanted, results are to be the same from run to run. This file is compiled without
 * contraction to fused multiply-add, or ranks of different builds would differ.
 *
 * Called by codec.c. */
#include "runtime/core/compress/int8.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>

#include "runtime/core/compress/cast.h"
#include "runtime/core/half.h"

#define SCALE_MIN 0x1p-126f        /* the smallest normal number */
#define SCALE_MAX 0x1.020406p+121f /* the largest one whose 127-fold is finite */
#define ROUNDER   0x1.8p23f        /* x + ROUNDER has x's integer in its low bits */
#define INF_BITS  0x7f800000       /* magnitudes from here on are not finite */
#define ABS_BITS  0x7fffffff

uint64_t int8_n_blocks(uint64_t count, uint32_t block)
{
    return count / block + (count % block != 0);
}

uint64_t int8_wire_bytes(uint64_t count, uint32_t block)
{
    return int8_n_blocks(count, block) * sizeof(float) + count;
}

static float scale_of(const float *restrict w, uint32_t n)
{
    int32_t top = 0; /* magnitudes grow with their bits */
    float s;

    for (uint32_t i = 0; i < n; i++) {
        int32_t a = (int32_t)(f32_bits(w[i]) & ABS_BITS);

        top = a > top ? a : top;
    }
    if (top >= INF_BITS)
        return NAN;
    s = f32_of_bits((uint32_t)top) / 127;
    if (s < SCALE_MIN)
        return 0;
    return s > SCALE_MAX ? SCALE_MAX : s;
}

static void quantise(int8_t *restrict q, const float *restrict w, uint32_t n, float s)
{
    float inverse = 1 / s;

    for (uint32_t i = 0; i < n; i++)
        q[i] = (int8_t)(uint8_t)f32_bits(w[i] * inverse + ROUNDER);
}

static void
encode_block(uint8_t *wire_scale, int8_t *q, float *w, float *residual, uint32_t n)
{
    float s = scale_of(w, n);

    memcpy(wire_scale, &s, sizeof(s));
    if (s > 0)
        quantise(q, w, n, s);
    else
        memset(q, 0, n); /* zeros, or NaN whatever the bytes */
    if (!residual)
        return;
    if (s != s)
        memset(residual, 0, n * sizeof(*residual));
    else
        for (uint32_t i = 0; i < n; i++)
            residual[i] = w[i] - (float)q[i] * s;
}

void int8_encode(uint8_t *wire,
                 const void *in,
                 enum dtype t,
                 double scale,
                 float *residual,
                 uint64_t count,
                 uint32_t block)
{
    int8_t *q = (int8_t *)wire + int8_n_blocks(count, block) * sizeof(float);
    float w[INT8_BLOCK_MAX];

    for (uint64_t at = 0; at < count; at += block, wire += sizeof(float)) {
        uint32_t n = count - at < block ? (uint32_t)(count - at) : block;
        float *r = residual ? residual + at : NULL;

        cast_load(w, cast_at(in, t, at), t, n, scale);
        if (r)
            for (uint32_t i = 0; i < n; i++)
                w[i] += r[i];
        encode_block(wire, q + at, w, r, n);
    }
}

/* acc += q * s. False: a byte is -128, which no encoder writes. */
static bool
add_block(float *restrict acc, const int8_t *restrict q, uint32_t n, float s)
{
    int8_t low = 0;

    for (uint32_t i = 0; i < n; i++)
        low = q[i] < low ? q[i] : low;
    for (uint32_t i = 0; i < n; i++)
        acc[i] += (float)q[i] * s;
    return low >= -127;
}

static bool scale_is_valid(float s)
{
    return s != s || s == 0 || (s >= SCALE_MIN && s <= SCALE_MAX);
}

/* Block b, which begins at element `at`, of n messages. */
static int sum_block(float *acc,
                     const uint8_t *wire,
                     uint32_t n,
                     uint64_t count,
                     uint32_t block,
                     uint64_t b,
                     struct err *err)
{
    uint64_t each = int8_wire_bytes(count, block), at = b * block;
    uint64_t values = int8_n_blocks(count, block) * sizeof(float) + at;
    uint32_t k = count - at < block ? (uint32_t)(count - at) : block;

    memset(acc, 0, k * sizeof(*acc));
    for (uint32_t i = 0; i < n; i++, wire += each) {
        float s;

        memcpy(&s, wire + b * sizeof(s), sizeof(s));
        if (!scale_is_valid(s))
            return err_set(err, -EBADMSG,
                           "int8 message of member %u: scale of block %" PRIu64
                           " is %g, must be 0, NaN or from %g to %g",
                           i, b, (double)s, (double)SCALE_MIN, (double)SCALE_MAX);
        if (!add_block(acc, (const int8_t *)wire + values, k, s))
            return err_set(err, -EBADMSG,
                           "int8 message of member %u: block %" PRIu64
                           " holds -128, must be -127 to 127",
                           i, b);
    }
    return 0;
}

int int8_sum(void *out,
             enum dtype t,
             double factor,
             const uint8_t *wire,
             uint64_t n_bytes,
             uint32_t n,
             uint64_t count,
             uint32_t block,
             struct err *err)
{
    uint64_t each = int8_wire_bytes(count, block);
    uint64_t n_blocks = int8_n_blocks(count, block);
    float acc[INT8_BLOCK_MAX];

    if (n_bytes / n != each || n_bytes % n != 0)
        return err_set(err, -EBADMSG,
                       "int8 messages: %" PRIu64
                       " bytes of %u members, must be %" PRIu64 " of each",
                       n_bytes, n, each);
    for (uint64_t b = 0; b < n_blocks; b++) {
        uint64_t at = b * block;
        uint32_t k = count - at < block ? (uint32_t)(count - at) : block;
        int r = sum_block(acc, wire, n, count, block, b, err);

        if (r < 0)
            return r;
        cast_store(cast_at_out(out, t, at), t, acc, k, factor);
    }
    return 0;
}
