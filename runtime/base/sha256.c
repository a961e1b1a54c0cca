/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 as FIPS 180-4 section 6.2 writes it, HMAC as RFC 2104. Plain C: control
 * traffic only, a few KiB per connection. Checked against NIST's and RFC 4231's
 * vectors. */
#include "runtime/base/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
    0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
    0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
    0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
    0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
    0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
    0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
    0xc67178f2};

static uint32_t word_rotate(uint32_t x, unsigned n)
{
    return x >> n | x << (32 - n);
}

static void block_compress(uint32_t h[8], const uint8_t block[64])
{
    uint32_t w[64], v[8];

    for (unsigned i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16
               | (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (unsigned i = 16; i < 64; i++) {
        uint32_t s0 =
            word_rotate(w[i - 15], 7) ^ word_rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t s1 =
            word_rotate(w[i - 2], 17) ^ word_rotate(w[i - 2], 19) ^ w[i - 2] >> 10;

        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    memcpy(v, h, sizeof(v));
    for (unsigned i = 0; i < 64; i++) {
        uint32_t s1 =
            word_rotate(v[4], 6) ^ word_rotate(v[4], 11) ^ word_rotate(v[4], 25);
        uint32_t ch = (v[4] & v[5]) ^ (~v[4] & v[6]);
        uint32_t t1 = v[7] + s1 + ch + K[i] + w[i];
        uint32_t s0 =
            word_rotate(v[0], 2) ^ word_rotate(v[0], 13) ^ word_rotate(v[0], 22);
        uint32_t maj = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);

        memmove(v + 1, v, 7 * sizeof(v[0]));
        v[4] += t1;
        v[0] = t1 + s0 + maj;
    }
    for (unsigned i = 0; i < 8; i++)
        h[i] += v[i];
}

void sha256_init(struct sha256 *s)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

    memcpy(s->h, start, sizeof(start));
    s->n_bytes = 0;
}

void sha256_add(struct sha256 *s, const void *p, size_t n)
{
    const uint8_t *in = p;

    while (n) {
        size_t at = (size_t)(s->n_bytes % 64);
        size_t k = 64 - at < n ? 64 - at : n;

        memcpy(s->block + at, in, k);
        s->n_bytes += k;
        in += k;
        n -= k;
        if (at + k == 64)
            block_compress(s->h, s->block);
    }
}

void sha256_end(struct sha256 *s, uint8_t ret[SHA256_BYTES])
{
    uint64_t n_bits = s->n_bytes * 8;
    uint8_t tail[72] = {0x80};
    size_t pad = (size_t)((119 - s->n_bytes % 64) % 64) + 1; /* to 56 mod 64 */

    for (unsigned i = 0; i < 8; i++)
        tail[pad + i] = (uint8_t)(n_bits >> (56 - 8 * i));
    sha256_add(s, tail, pad + 8);
    for (unsigned i = 0; i < SHA256_BYTES; i++)
        ret[i] = (uint8_t)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}

void sha256_digest(const void *p, size_t n, uint8_t ret[SHA256_BYTES])
{
    struct sha256 s;

    sha256_init(&s);
    sha256_add(&s, p, n);
    sha256_end(&s, ret);
}

void hmac_init(struct hmac *m, const void *key, size_t key_bytes)
{
    uint8_t k[64] = {0}, pad[64];

    if (key_bytes > sizeof(k))
        sha256_digest(key, key_bytes, k);
    else if (key_bytes)
        memcpy(k, key, key_bytes);
    for (unsigned i = 0; i < 64; i++)
        pad[i] = k[i] ^ 0x36;
    sha256_init(&m->inner);
    sha256_add(&m->inner, pad, sizeof(pad));
    for (unsigned i = 0; i < 64; i++)
        pad[i] = k[i] ^ 0x5c;
    sha256_init(&m->outer);
    sha256_add(&m->outer, pad, sizeof(pad));
}

void hmac_add(struct hmac *m, const void *p, size_t n)
{
    sha256_add(&m->inner, p, n);
}

void hmac_end(struct hmac *m, uint8_t ret[SHA256_BYTES])
{
    uint8_t inner[SHA256_BYTES];

    sha256_end(&m->inner, inner);
    sha256_add(&m->outer, inner, sizeof(inner));
    sha256_end(&m->outer, ret);
}

int mac_equal(const uint8_t a[SHA256_BYTES], const uint8_t b[SHA256_BYTES])
{
    volatile uint8_t diff = 0; /* volatile: no early way out for the optimiser */

    for (unsigned i = 0; i < SHA256_BYTES; i++)
        diff = (uint8_t)(diff | (a[i] ^ b[i]));
    return diff == 0;
}

static int urandom_bytes(uint8_t *p, size_t n)
{
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    int rc = 0;

    if (fd < 0)
        return -errno;
    while (n && rc == 0) {
        ssize_t k = read(fd, p, n);

        if (k > 0) {
            p += k;
            n -= (size_t)k;
        } else if (k == 0) {
            rc = -EIO;
        } else if (errno != EINTR) {
            rc = -errno;
        }
    }
    (void)close(fd); /* read only: nothing to lose */
    return rc;
}

int random_bytes(void *p, size_t n)
{
    uint8_t *out = p;

    while (n) {
        long k = syscall(SYS_getrandom, out, n, 0);

        if (k > 0) {
            out += k;
            n -= (size_t)k;
        } else if (errno == ENOSYS) {
            return urandom_bytes(out, n);
        } else if (errno != EINTR) {
            return -errno;
        }
    }
    return 0;
}

void hex_encode(const void *p, size_t n, char *ret)
{
    const uint8_t *in = p;

    for (size_t i = 0; i < n; i++) {
        ret[2 * i] = "0123456789abcdef"[in[i] >> 4];
        ret[2 * i + 1] = "0123456789abcdef"[in[i] & 15];
    }
    ret[2 * n] = '\0';
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

int hex_decode(const char *s, void *ret, size_t n)
{
    uint8_t *out = ret;

    if (strnlen(s, 2 * n + 1) != 2 * n)
        return -EINVAL;
    for (size_t i = 0; i < 2 * n; i++)
        if (hex_digit(s[i]) < 0)
            return -EINVAL;
    for (size_t i = 0; i < n; i++)
        out[i] = (uint8_t)((unsigned)hex_digit(s[2 * i]) << 4
                           | (unsigned)hex_digit(s[2 * i + 1]));
    return 0;
}
