/* SPDX-License-Identifier: Apache-2.0 */
/* The k elements of largest magnitude, as (index, value) pairs. Pure.
 *
 * A message: k indexes, ascending, of 4 bytes (8 in a tensor of more than 2^32 - 1
 * elements), then k float32 values. Always k pairs, so that every rank knows every
 * length. Ties go to the lowest index and NaN counts as largest, so the choice is a
 * function of the values alone. Byte order is the machine's; alignment is not needed.
 */
#ifndef RUNTIME_CORE_COMPRESS_TOPK_H
#define RUNTIME_CORE_COMPRESS_TOPK_H

#include "runtime/base/err.h"
#include "runtime/core/compress/kernels.h"
#include "runtime/core/types.h"

uint32_t topk_index_bytes(uint64_t count);
uint64_t topk_wire_bytes(uint64_t count, uint64_t k);

/* Of memory that topk_encode needs for a message: it, or more for candidates. */
uint64_t topk_room_bytes(uint64_t count, uint64_t k);

/* Takes the k largest out of w into wire (aligned to 4, topk_room_bytes): they are 0 in
 * w afterwards, and so is what is not finite. k is at most count; 0 does nothing.
 * O(count) in the worst case. */
void topk_encode(const struct codec_kernels *kernels,
                 uint8_t *wire,
                 float *w,
                 uint64_t count,
                 uint64_t k);
/* The message of a rank that has only zeros. */
void topk_zeros(uint8_t *wire, uint64_t count, uint64_t k);

/* acc = sum of n consecutive messages, in their order. n_bytes: of all of them.
 * -EBADMSG with an error message that names the member: a message is invalid (length,
 * an index out of range or not above the one before); the content of acc is then
 * undefined.
 */
int topk_sum(float *acc,
             const uint8_t *wire,
             uint64_t n_bytes,
             uint32_t n,
             uint64_t count,
             uint64_t k,
             struct err *err);

#endif
