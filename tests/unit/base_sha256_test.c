/* SPDX-License-Identifier: Apache-2.0 */
/* NIST's examples (FIPS 180-4, CAVP) and RFC 4231's, and lengths around every block
 * border against the same bytes fed in pieces. */
#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"
#include "runtime/base/sha256_blocks.h"
#include "tests/unit/seeded.h"
#include "tests/unit/unit.h"

static void is_hash(const void *p, size_t n, const char *want)
{
    uint8_t h[SHA256_BYTES];
    char hex[2 * SHA256_BYTES + 1];

    sha256_digest(p, n, h);
    hex_encode(h, sizeof(h), hex);
    assert_string_equal(hex, want);
}

UNIT_TEST(nist_vectors)
{
    static const uint8_t bd = 0xbd;
    static const uint8_t four[] = {0xc9, 0x8c, 0x8e, 0x55};
    static uint8_t zero[1000000];

    is_hash("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    is_hash("abc", 3,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    is_hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    is_hash(&bd, 1, "68325720aabd7c82f30f554b313d0570c95accbb7dc4b5aae11204c08ffe732b");
    is_hash(four, 4,
            "7abc22c0ae5af26ce93dbb94433a0e0b2e119d014f8e7f65bd56c61ccccd9504");
    is_hash(zero, 55,
            "02779466cdec163811d078815c633f21901413081449002f24aa3e80f0b88ef7");
    is_hash(zero, 56,
            "d4817aa5497628e7c77e6b606107042bbba3130888c5f47a375e6179be789fbb");
    is_hash(zero, 57,
            "65a16cb7861335d5ace3c60718b5052e44660726da4cd13bb745381b235a1785");
    is_hash(zero, 64,
            "f5a5fd42d16a20302798ef6ed309979b43003d2320d9f0e8ea9831a92759fb4b");
    is_hash(zero, 1000000,
            "d29751f2649b32ff572b5e0a9f541ea660a50f94ff0beedfb0b692b924cc8025");
}

UNIT_TEST(all_implementations_agree)
{
    struct seeded r = {3};
    uint8_t p[64 * 5];

    for (unsigned i = 0; i < 300; i++) {
        uint32_t a[8], b[8];
        size_t n = seeded_below(&r, 6);

        for (unsigned k = 0; k < sizeof(p); k++)
            p[k] = (uint8_t)seeded_next(&r);
        for (unsigned k = 0; k < 8; k++)
            a[k] = b[k] = (uint32_t)seeded_next(&r);
        sha256_blocks_portable(a, p, n);
        sha256_blocks_best()(b, p, n);
        assert_memory_equal(a, b, sizeof(a));
    }
}

UNIT_TEST(pieces_are_as_the_whole)
{
    uint8_t data[300], a[SHA256_BYTES], b[SHA256_BYTES];

    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(i * 7 + 1);
    for (size_t n = 0; n <= sizeof(data); n++) {
        struct sha256 s;
        size_t step = n % 71 + 1;

        sha256_digest(data, n, a);
        sha256_init(&s);
        for (size_t at = 0; at < n; at += step)
            sha256_add(&s, data + at, n - at < step ? n - at : step);
        sha256_add(&s, NULL, 0);
        sha256_end(&s, b);
        assert_memory_equal(a, b, sizeof(a));
    }
}

UNIT_TEST(rfc_4231_vectors)
{
    uint8_t k20[20], k131[131];
    const struct {
        const void *key, *data;
        size_t key_n, data_n;
        const char *want;
    } t[] = {
        {k20, "Hi There", 20, 8,
         "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
        {"Jefe", "what do ya want for nothing?", 4, 28,
         "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
        {k131, "Test Using Larger Than Block-Size Key - Hash Key First", 131, 54,
         "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
        {k131,
         "This is a test using a larger than block-size key and a larger than "
         "block-size data. The key needs to be hashed before being used by the HMAC "
         "algorithm.",
         131, 152, "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"},
    };

    memset(k20, 0x0b, sizeof(k20));
    memset(k131, 0xaa, sizeof(k131));
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct hmac m;
        uint8_t h[SHA256_BYTES];
        char hex[2 * SHA256_BYTES + 1];

        hmac_init(&m, t[i].key, t[i].key_n);
        hmac_add(&m, t[i].data, t[i].data_n);
        hmac_end(&m, h);
        hex_encode(h, sizeof(h), hex);
        assert_string_equal(hex, t[i].want);
    }
}

UNIT_TEST(equal_macs_and_others)
{
    uint8_t a[SHA256_BYTES] = {1}, b[SHA256_BYTES] = {1};

    assert_true(mac_equal(a, b));
    for (size_t i = 0; i < sizeof(a); i++) {
        b[i] ^= 0x80;
        assert_false(mac_equal(a, b));
        b[i] ^= 0x80;
    }
}

UNIT_TEST(hex_both_ways)
{
    uint8_t v[3];

    assert_int_equal(hex_decode("00fFa9", v, 3), 0);
    assert_memory_equal(v, "\x00\xff\xa9", 3);
    assert_int_equal(hex_decode("00ffa", v, 3), -EINVAL);
    assert_int_equal(hex_decode("00ffa90", v, 3), -EINVAL);
    assert_int_equal(hex_decode("00ffg9", v, 3), -EINVAL);
}

UNIT_TEST(random_bytes_differ)
{
    uint8_t a[1000] = {0}, b[1000] = {0};

    assert_int_equal(random_bytes(a, sizeof(a)), 0);
    assert_int_equal(random_bytes(b, sizeof(b)), 0);
    assert_memory_not_equal(a, b, sizeof(a));
    assert_memory_not_equal(a + 900, a, 100);
}

UNIT_MAIN(NULL, NULL)
