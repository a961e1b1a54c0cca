/* SPDX-License-Identifier: Apache-2.0 */
/* CRC32C: published values, and all implementations that this CPU can run against each
 * other, at every length and alignment around the borders of their blocks. */
#include "runtime/backend/cpu/crc32c.h"
#include "runtime/base/mem.h"
#include "tests/unit/seeded.h"
#include "tests/unit/unit.h"

static void all_give(const void *p, size_t n, uint32_t want)
{
    assert_int_equal(crc32c_portable(0, p, n), want);
    assert_int_equal(crc32c_best()(0, p, n), want);
}

/* RFC 3720, appendix B.4, and the check value of CRC catalogues. */
UNIT_TEST(published_values)
{
    uint8_t p[32];

    all_give("", 0, 0);
    all_give("123456789", 9, 0xe3069283);
    memset(p, 0, sizeof(p));
    all_give(p, sizeof(p), 0x8a9136aa);
    memset(p, 0xff, sizeof(p));
    all_give(p, sizeof(p), 0x62a8ab43);
    for (unsigned i = 0; i < sizeof(p); i++)
        p[i] = (uint8_t)i;
    all_give(p, sizeof(p), 0x46dd794e);
    for (unsigned i = 0; i < sizeof(p); i++)
        p[i] = (uint8_t)(31 - i);
    all_give(p, sizeof(p), 0x113fdb5c);
}

UNIT_TEST(all_implementations_agree)
{
    enum { N = 3 * 4096 * 2 + 3 * 256 + 17 };
    AUTOFREE uint8_t *p = mem_alloc(N + 8);
    struct seeded r = {7};
    crc32c_fn best = crc32c_best();

    assert_non_null(p);
    for (size_t i = 0; i < N + 8; i++)
        p[i] = (uint8_t)seeded_next(&r);
    for (size_t n = 0; n < N; n += n < 2000 || (n > 12200 && n < 12400) ? 1 : 97) {
        size_t at = seeded_below(&r, 8);
        uint32_t start = (uint32_t)seeded_next(&r);

        assert_int_equal(best(start, p + at, n), crc32c_portable(start, p + at, n));
    }
}

UNIT_TEST(pieces_are_as_the_whole)
{
    uint8_t p[1000];
    struct seeded r = {8};
    crc32c_fn best = crc32c_best();

    for (size_t i = 0; i < sizeof(p); i++)
        p[i] = (uint8_t)seeded_next(&r);
    for (size_t cut = 0; cut <= sizeof(p); cut++)
        assert_int_equal(best(best(0, p, cut), p + cut, sizeof(p) - cut),
                         crc32c_portable(0, p, sizeof(p)));
}

UNIT_TEST(this_cpu_uses_its_instruction)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul"))
        assert_ptr_equal(crc32c_best(), crc32c_x86);
#endif
    assert_non_null(crc32c_best());
}

UNIT_MAIN(NULL, NULL)
