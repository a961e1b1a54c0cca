/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 as FIPS 180-4 section 6.2 writes it, HMAC as RFC 2104. Checked against NIST's
 * and RFC 4231's vectors.
 *
 * A CPU's SHA instructions are five times faster than the plain C below
 * (sha256_x86.c). The only global: whether this CPU has them. Asking the CPU costs a
 * microsecond in a virtual machine, so it is done once; every thread gets the same
 * answer. */
#include "runtime/base/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/base/sha256_blocks.h"

const uint32_t sha256_constants[64] = {
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

/* One round; the caller renames the variables instead of moving them. */
#define ROUND(a, b, c, d, e, f, g, h, i)                                               \
    do {                                                                               \
        uint32_t t1 = (h)                                                              \
                      + (word_rotate(e, 6) ^ word_rotate(e, 11) ^ word_rotate(e, 25))  \
                      + (((e) & (f)) ^ (~(e) & (g))) + sha256_constants[i] + w[i];     \
        (d) += t1;                                                                     \
        (h) = t1 + (word_rotate(a, 2) ^ word_rotate(a, 13) ^ word_rotate(a, 22))       \
              + (((a) & (b)) ^ ((a) & (c)) ^ ((b) & (c)));                             \
    } while (0)

static void block_compress(uint32_t h[8], const uint8_t block[64])
{
    uint32_t w[64];

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
    uint32_t a = h[0], b = h[1], c = h[2], d = h[3];
    uint32_t e = h[4], f = h[5], g = h[6], k = h[7];
    for (unsigned i = 0; i < 64; i += 8) {
        ROUND(a, b, c, d, e, f, g, k, i);
        ROUND(k, a, b, c, d, e, f, g, i + 1);
        ROUND(g, k, a, b, c, d, e, f, i + 2);
        ROUND(f, g, k, a, b, c, d, e, i + 3);
        ROUND(e, f, g, k, a, b, c, d, i + 4);
        ROUND(d, e, f, g, k, a, b, c, i + 5);
        ROUND(c, d, e, f, g, k, a, b, i + 6);
        ROUND(b, c, d, e, f, g, k, a, i + 7);
    }
    h[0] += a;
    h[1] += b;
    h[2] += c;
    h[3] += d;
    h[4] += e;
    h[5] += f;
    h[6] += g;
    h[7] += k;
}

void sha256_blocks_portable(uint32_t h[8], const uint8_t *p, size_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, p += 64)
        block_compress(h, p);
}

#if defined(__x86_64__)

#include <cpuid.h>

static bool cpu_has_sha(void)
{
    const unsigned needed = 1u << 9 | 1u << 19; /* SSSE3, SSE4.1 */
    unsigned a, b, c, d;

    return __get_cpuid(1, &a, &b, &c, &d) && (c & needed) == needed
           && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & 1u << 29);
}

#else

static bool cpu_has_sha(void)
{
    return false;
}

#endif

sha256_blocks_fn sha256_blocks_best(void)
{
    static _Atomic(sha256_blocks_fn) best;
    /* relaxed: the functions are constants */
    sha256_blocks_fn f = atomic_load_explicit(&best, memory_order_relaxed);

    if (!f) {
        f = sha256_blocks_x86 && cpu_has_sha() ? sha256_blocks_x86
                                               : sha256_blocks_portable;
        atomic_store_explicit(&best, f, memory_order_relaxed);
    }
    return f;
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
    size_t at = (size_t)(s->n_bytes % 64);

    if (n == 0) /* p may be NULL */
        return;
    s->n_bytes += n;
    if (at > 0) {
        size_t k = 64 - at < n ? 64 - at : n;

        memcpy(s->block + at, in, k);
        if (at + k < 64)
            return;
        sha256_blocks_best()(s->h, s->block, 1);
        in += k;
        n -= k;
    }
    if (n >= 64)
        sha256_blocks_best()(s->h, in, n / 64);
    if (n % 64 > 0)
        memcpy(s->block, in + n / 64 * 64, n % 64);
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
