/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loop of SHA-256; only for sha256*.c and their test. */
#ifndef RUNTIME_BASE_SHA256_BLOCKS_H
#define RUNTIME_BASE_SHA256_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

extern const uint32_t sha256_constants[64];

/* Adds n_blocks blocks of 64 bytes to the state h. */
typedef void (*sha256_blocks_fn)(uint32_t h[8], const uint8_t *p, size_t n_blocks);

void sha256_blocks_portable(uint32_t h[8], const uint8_t *p, size_t n_blocks);
/* NULL where the program was built for another kind of CPU. Only for a CPU that has the
 * SHA extensions. */
extern const sha256_blocks_fn sha256_blocks_x86;
sha256_blocks_fn sha256_blocks_best(void);

#endif
