/* SPDX-License-Identifier: Apache-2.0 */
/* Eight bits an element, one float32 scale a block. Pure.
 *
 * A message of `count` elements in blocks of `block`: the scales of all blocks, then
 * one signed byte (-127 to 127) an element. The value is byte * scale. A block that
 * holds a NaN or an infinity has the scale NaN and decodes as NaN. One whose largest
 * magnitude is below 127 * 2^-126 has the scale 0 and decodes as 0 (what it held is the
 * residual's to keep): a scale and its inverse are never subnormal. Else scale =
 * largest magnitude / 127 and the error of an element is at most scale / 2 (1 + 2^-14).
 *
 * Byte order is the machine's; alignment is not needed. */
#ifndef RUNTIME_CORE_COMPRESS_INT8_H
#define RUNTIME_CORE_COMPRESS_INT8_H

#include "runtime/base/err.h"
#include "runtime/core/compress/kernels.h"
#include "runtime/core/types.h"

#define INT8_BLOCK_MIN 256
#define INT8_BLOCK_MAX 1024
#define INT8_SCALE_MIN 0x1p-126f        /* the smallest normal number */
#define INT8_SCALE_MAX 0x1.020406p+121f /* the largest one whose 127-fold is finite */

uint64_t int8_n_blocks(uint64_t count, uint32_t block);
uint64_t int8_wire_bytes(uint64_t count, uint32_t block);

/* wire = message of scale * in, plus residual; residual (NULL: no feedback) gets what
 * the message lacks, 0 where that would not be finite. */
void int8_encode(const struct codec_kernels *k,
                 uint8_t *wire,
                 const void *in,
                 enum dtype t,
                 double scale,
                 float *residual,
                 uint64_t count,
                 uint32_t block);

/* out = factor * sum of n consecutive messages, summed in float32 in their order.
 * n_bytes: of all of them. -EBADMSG with an error message that names the member: a
 * message is invalid; the content of out is then undefined. */
int int8_sum(const struct codec_kernels *k,
             void *out,
             enum dtype t,
             double factor,
             const uint8_t *wire,
             uint64_t n_bytes,
             uint32_t n,
             uint64_t count,
             uint32_t block,
             struct err *err);

#endif
