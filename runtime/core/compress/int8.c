/* SPDX-License-Identifier: Apache-2.0 */
/* Block-wise symmetric quantisation, as in Dettmers' "8-bit approximations for
 * parallelism in deep learning" (2016) and the block scales of the 8-bit optimizers
 * (2022), with the residual fed back into the next step as in Seide et al. (2014) and
 * Karimireddy et al. (2019).
 *
 * All work is done a block at a time, so a tensor is read once and written once
 * whatever its type. Rounding is to nearest even by adding 1.5 * 2^23, which vectorises
 * everywhere and leaves the integer in the low bits; stochastic rounding is not wanted,
 * results are to be the same from run to run. The loops are in kernels.inc.h.
 *
 * Called by codec.c. */
#include "runtime/core/compress/int8.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "runtime/core/compress/cast.h"
uint64_t int8_n_blocks(uint64_t count, uint32_t block)
{
    return count / block + (count % block != 0);
}

uint64_t int8_wire_bytes(uint64_t count, uint32_t block)
{
    return int8_n_blocks(count, block) * sizeof(float) + count;
}

void int8_encode(const struct codec_kernels *k,
                 uint8_t *wire,
                 const void *in,
                 enum dtype t,
                 double scale,
                 float *residual,
                 uint64_t count,
                 uint32_t block)
{
    int8_t *q = (int8_t *)wire + int8_n_blocks(count, block) * sizeof(float);
    bool is_plain = t == DT_F32 && scale == 1;
    float buf[INT8_BLOCK_MAX], s;

    for (uint64_t at = 0; at < count; at += block, wire += sizeof(s)) {
        uint32_t n = count - at < block ? (uint32_t)(count - at) : block;
        const float *x = is_plain ? (const float *)in + at : buf;

        if (!is_plain)
            cast_load(k, buf, cast_at(in, t, at), t, n, scale);
        s = k->int8_code(q + at, x, residual ? residual + at : NULL, n);
        memcpy(wire, &s, sizeof(s));
    }
}

static bool scale_is_valid(float s)
{
    return s != s || s == 0 || (s >= INT8_SCALE_MIN && s <= INT8_SCALE_MAX);
}

/* Block b, which begins at element `at`, of n messages. */
static int sum_block(const struct codec_kernels *k,
                     float *acc,
                     const uint8_t *wire,
                     uint32_t n,
                     uint64_t count,
                     uint32_t block,
                     uint64_t b,
                     struct err *err)
{
    uint64_t each = int8_wire_bytes(count, block), at = b * block;
    uint64_t values = int8_n_blocks(count, block) * sizeof(float) + at;
    uint32_t len = count - at < block ? (uint32_t)(count - at) : block;

    memset(acc, 0, len * sizeof(*acc));
    for (uint32_t i = 0; i < n; i++, wire += each) {
        float s;

        memcpy(&s, wire + b * sizeof(s), sizeof(s));
        if (!scale_is_valid(s))
            return err_set(err, -EBADMSG,
                           "int8 message of member %u: scale of block %" PRIu64
                           " is %g, must be 0, NaN or from %g to %g",
                           i, b, (double)s, (double)INT8_SCALE_MIN,
                           (double)INT8_SCALE_MAX);
        if (!k->int8_add(acc, (const int8_t *)wire + values, len, s))
            return err_set(err, -EBADMSG,
                           "int8 message of member %u: block %" PRIu64
                           " holds -128, must be -127 to 127",
                           i, b);
    }
    return 0;
}

int int8_sum(const struct codec_kernels *k,
             void *out,
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
        uint32_t len = count - at < block ? (uint32_t)(count - at) : block;
        int rc = sum_block(k, acc, wire, n, count, block, b, err);

        if (rc < 0)
            return rc;
        cast_store(k, cast_at_out(out, t, at), t, acc, len, factor);
    }
    return 0;
}
