/* SPDX-License-Identifier: Apache-2.0 */
/* A digest of a tensor's bytes, and the comparison of two tensors bit by bit. For ranks
 * that check whether they have the same values (HVD_REPLICA_CHECK, HVD_REPLAY). Pure. */
#ifndef RUNTIME_CORE_DIGEST_H
#define RUNTIME_CORE_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 64 bits of n bytes at data, in any alignment; data may be NULL if n is 0. The same on every
 * machine of one byte order. A change of one word of 8 bytes always changes it, any other
 * change with a chance of 1 - 2^-64. It is no protection from an attacker. */
uint64_t digest_of(const void *data, size_t n);

struct difference {
    uint64_t at; /* index of the first element that differs */
    uint64_t n;  /* how many differ */
};

/* Compares n elements of `size` bytes each, in any alignment. False: all bits are equal;
 * *ret is unchanged. */
bool difference_find(
    const void *a, const void *b, uint64_t n, size_t size, struct difference *ret);

#endif
