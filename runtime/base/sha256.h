/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104), and the system's random bytes. */
#ifndef RUNTIME_BASE_SHA256_H
#define RUNTIME_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define SHA256_BYTES 32

struct sha256 {
    uint32_t h[8];
    uint64_t n_bytes;
    uint8_t block[64];
};

void sha256_init(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *p, size_t n);
void sha256_end(struct sha256 *s, uint8_t ret[SHA256_BYTES]);
void sha256_digest(const void *p, size_t n, uint8_t ret[SHA256_BYTES]);

struct hmac {
    struct sha256 inner, outer;
};
void hmac_init(struct hmac *m, const void *key, size_t key_bytes);
void hmac_add(struct hmac *m, const void *p, size_t n);
void hmac_end(struct hmac *m, uint8_t ret[SHA256_BYTES]);
/* Constant time; 1 when equal. */
int mac_equal(const uint8_t a[SHA256_BYTES], const uint8_t b[SHA256_BYTES]);

/* getrandom(2) by syscall, /dev/urandom where the kernel lacks it. 0 or -errno. */
int random_bytes(void *p, size_t n);
void hex_encode(const void *p, size_t n, char *ret); /* 2n+1 bytes */
int hex_decode(const char *s,
               void *ret,
               size_t n); /* exactly 2n digits, else -EINVAL */

#endif
