/* SPDX-License-Identifier: Apache-2.0 */
/* NaN and infinity in every floating point type, at every place that matters. */
#include <math.h>

#include "runtime/base/mem.h"
#include "runtime/core/nonfinite.h"
#include "tests/unit/unit.h"

enum { MAX_N = 5000 };

static const struct form {
    enum dtype t;
    uint64_t largest, tiny, minus_zero, inf, minus_inf, quiet, signalling, minus_nan;
} forms[] = {
    {DT_F16, 0x7bff, 1, 0x8000, 0x7c00, 0xfc00, 0x7e00, 0x7c01, 0xffff},
    {DT_BF16, 0x7f7f, 1, 0x8000, 0x7f80, 0xff80, 0x7fc0, 0x7f81, 0xffff},
    {DT_F32, 0x7f7fffff, 1, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001,
     0xffffffff},
    {DT_F64, 0x7fefffffffffffff, 1, 0x8000000000000000, 0x7ff0000000000000,
     0xfff0000000000000, 0x7ff8000000000000, 0x7ff0000000000001, 0xffffffffffffffff},
};

static void number_store(enum dtype t, unsigned char *p, uint64_t i, uint64_t v)
{
    size_t size = dtype_size(t);

    memcpy(p + i * size, &v, size); /* little endian, as all we run on */
}

UNIT_TEST(finite_numbers_pass)
{
    static unsigned char buf[MAX_N * 8];

    for (size_t f = 0; f < ARRAY_LEN(forms); f++)
        for (uint64_t n = 0; n < MAX_N; n += 499) {
            struct nonfinite found = {.at = 77};

            for (uint64_t i = 0; i < n; i++)
                number_store(forms[f].t, buf, i,
                             i % 3 == 0   ? forms[f].largest
                             : i % 3 == 1 ? forms[f].tiny
                                          : forms[f].minus_zero);
            assert_false(nonfinite_find(forms[f].t, buf, n, &found));
            assert_int_equal(found.at, 77);
        }
}

UNIT_TEST(each_kind_is_found_at_each_place)
{
    static const uint64_t places[] = {0, 1, 31, 1023, 1024, 1025, 2047, 4095, 4999};
    static unsigned char buf[MAX_N * 8 + 1];

    for (size_t f = 0; f < ARRAY_LEN(forms); f++) {
        const uint64_t bad[] = {forms[f].inf, forms[f].minus_inf, forms[f].quiet,
                                forms[f].signalling, forms[f].minus_nan};

        for (size_t b = 0; b < ARRAY_LEN(bad); b++)
            for (size_t k = 0; k < ARRAY_LEN(places); k++) {
                struct nonfinite found;
                unsigned char *p = buf + k % 2; /* unaligned too */

                memset(buf, 0, sizeof(buf));
                number_store(forms[f].t, p, places[k], bad[b]);
                assert_true(nonfinite_find(forms[f].t, p, places[k] + 1, &found));
                assert_int_equal(found.at, places[k]);
                assert_int_equal(found.n, 1);
                assert_int_equal(found.is_nan, b >= 2);
                assert_false(nonfinite_find(forms[f].t, p, places[k], &found));
            }
    }
}

UNIT_TEST(the_first_is_reported_and_all_are_counted)
{
    static float v[MAX_N];
    struct nonfinite found;

    memset(v, 0, sizeof(v));
    v[17] = INFINITY;
    v[18] = NAN;
    v[4000] = NAN;
    assert_true(nonfinite_find(DT_F32, v, MAX_N, &found));
    assert_int_equal(found.at, 17);
    assert_false(found.is_nan);
    assert_int_equal(found.n, 3);
}

UNIT_TEST(other_types_have_none)
{
    static unsigned char buf[64];

    memset(buf, 0xff, sizeof(buf));
    for (int t = 0; t < DT_COUNT; t++) {
        struct nonfinite found;
        bool is_float = t == DT_F16 || t == DT_BF16 || t == DT_F32 || t == DT_F64;

        assert_int_equal(nonfinite_find((enum dtype)t, buf, 8, &found), is_float);
    }
}

UNIT_MAIN(NULL, NULL)
