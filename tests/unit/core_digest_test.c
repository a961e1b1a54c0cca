/* SPDX-License-Identifier: Apache-2.0 */
/* The digest against a reference that works word by word, in every size and alignment;
 * every bit counts; and where two tensors differ. */
#include "runtime/base/mem.h"
#include "runtime/core/digest.h"
#include "tests/unit/unit.h"

enum { MAX_N = 700 };

#define ODD UINT64_C(0x9E3779B97F4A7C15)

static uint64_t reference_step(uint64_t lane, uint64_t word)
{
    uint64_t product = 0, x = lane ^ word;

    for (unsigned i = 0; i < 64; i++)
        if (ODD >> i & 1)
            product += x << i;
    return product ^ product >> 29;
}

/* What digest.c describes: the words in order, the last block filled up with zeros. */
static uint64_t reference_of(const unsigned char *p, size_t n)
{
    uint64_t lane[8], all = ODD;

    for (unsigned i = 0; i < 8; i++)
        lane[i] = ODD + i;
    for (size_t at = 0; at < (n + 63) / 64 * 64; at += 8) {
        uint64_t word = 0;

        for (size_t k = 0; k < 8; k++)
            word |= (uint64_t)(at + k < n ? p[at + k] : 0) << 8 * k;
        lane[at / 8 % 8] = reference_step(lane[at / 8 % 8], word);
    }
    for (unsigned i = 0; i < 8; i++)
        all = reference_step(all, lane[i]);
    all = reference_step(all, n);
    return all ^ all >> 32;
}

static void bytes_fill(unsigned char *p, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        p[i] = (unsigned char)(seed >> 56);
    }
}

/* In memory of exactly this size, so that a sanitizer finds a read beyond its end. */
UNIT_TEST(every_size_and_alignment_is_as_the_reference)
{
    for (size_t n = 0; n <= MAX_N; n++)
        for (size_t off = 0; off < 16; off++) {
            unsigned char *p = mem_alloc(n + off + 1);

            assert_non_null(p);
            bytes_fill(p + off + 1, n, n);
            assert_true(digest_of(p + off + 1, n) == reference_of(p + off + 1, n));
            mem_free(p);
        }
    assert_true(digest_of(NULL, 0) == reference_of(NULL, 0));
}

UNIT_TEST(every_bit_counts_alone_and_in_pairs)
{
    unsigned char buf[192];
    uint64_t before;

    bytes_fill(buf, sizeof(buf), 1);
    before = digest_of(buf, sizeof(buf));
    for (size_t i = 0; i < sizeof(buf) * 8; i++) {
        buf[i / 8] ^= (unsigned char)(1u << i % 8);
        assert_false(digest_of(buf, sizeof(buf)) == before);
        for (size_t j = 0; j < i; j++) { /* two signs of floats, among them */
            buf[j / 8] ^= (unsigned char)(1u << j % 8);
            assert_false(digest_of(buf, sizeof(buf)) == before);
            buf[j / 8] ^= (unsigned char)(1u << j % 8);
        }
        buf[i / 8] ^= (unsigned char)(1u << i % 8);
    }
    assert_true(digest_of(buf, sizeof(buf)) == before);
}

UNIT_TEST(zeros_of_other_lengths_and_words_in_another_order_differ)
{
    static const unsigned char zeros[256];
    uint64_t words[16], seen[257];

    for (size_t n = 0; n <= sizeof(zeros); n++) {
        seen[n] = digest_of(zeros, n);
        for (size_t k = 0; k < n; k++)
            assert_false(seen[n] == seen[k]);
    }
    bytes_fill((unsigned char *)words, sizeof(words), 2);
    for (size_t i = 0; i < 16; i++)
        for (size_t k = 0; k < i; k++) {
            uint64_t before = digest_of(words, sizeof(words)), word = words[i];

            words[i] = words[k];
            words[k] = word;
            assert_false(digest_of(words, sizeof(words)) == before);
        }
}

UNIT_TEST(the_first_and_the_number_of_differing_elements_are_found)
{
    static const size_t sizes[] = {1, 2, 4, 8, 16, 5000};
    static const uint64_t places[] = {0, 1, 255, 256, 1023, 1024, 4095, 4096, 4999};

    for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
        const size_t size = sizes[s];
        const uint64_t n = size > 100 ? 6 : 5000;
        unsigned char *a = mem_alloc(n * size + 1), *b = mem_alloc(n * size + 1);
        struct difference found = {.at = 77};

        assert_true(a && b);
        bytes_fill(a + 1, n * size, 3);
        memcpy(b + 1, a + 1, n * size);
        assert_false(difference_find(a + 1, b + 1, n, size, &found));
        assert_int_equal(found.at, 77);
        for (size_t k = ARRAY_LEN(places); k-- > 0;) {
            if (places[k] >= n)
                continue;
            b[1 + places[k] * size + size - 1] ^= 0x80;
            assert_true(difference_find(a + 1, b + 1, n, size, &found));
            assert_int_equal(found.at, places[k]);
        }
        assert_int_equal(found.n, size > 100 ? 2 : ARRAY_LEN(places));
        mem_free(a);
        mem_free(b);
    }
}

UNIT_MAIN(NULL, NULL)
