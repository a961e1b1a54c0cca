/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/base/mem.h"
#include "runtime/base/parse.h"
#include "tests/unit/unit.h"

UNIT_TEST(unsigned_numbers)
{
    static const struct {
        const char *s;
        uint64_t min, max, want;
        int rc;
    } t[] = {
        {"0", 0, 5, 0, 0},
        {"5", 0, 5, 5, 0},
        {"007", 0, 9, 7, 0},
        {"18446744073709551615", 0, UINT64_MAX, UINT64_MAX, 0},
        {"18446744073709551616", 0, UINT64_MAX, 0, -ERANGE},
        {"99999999999999999999999", 0, UINT64_MAX, 0, -ERANGE},
        {"6", 0, 5, 0, -ERANGE},
        {"1", 2, 5, 0, -ERANGE},
        {"", 0, 5, 0, -EINVAL},
        {" 1", 0, 5, 0, -EINVAL},
        {"1 ", 0, 5, 0, -EINVAL},
        {"+1", 0, 5, 0, -EINVAL},
        {"-1", 0, 5, 0, -EINVAL},
        {"0x1", 0, 5, 0, -EINVAL},
        {"1e3", 0, 5000, 0, -EINVAL},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct err e = ERR_INIT;
        uint64_t v = 77;

        assert_int_equal(parse_u64("f", t[i].s, t[i].min, t[i].max, &v, &e), t[i].rc);
        assert_int_equal(v, t[i].rc ? 77 : t[i].want);
        assert_int_equal(e.code, t[i].rc);
    }
}

UNIT_TEST(sentence_names_field_value_and_range)
{
    struct err e = ERR_INIT;
    uint32_t v;

    assert_int_equal(parse_u32("HOROVOD_RANK", "abc", 0, 65535, &v, &e), -EINVAL);
    assert_string_equal(e.text,
                        "HOROVOD_RANK: \"abc\" is not a number from 0 to 65535");
}

UNIT_TEST(signed_numbers)
{
    static const struct {
        const char *s;
        int64_t min, max, want;
        int rc;
    } t[] = {
        {"-1", -1, 5, -1, 0},
        {"-2", -1, 5, 0, -ERANGE},
        {"9223372036854775807", INT64_MIN, INT64_MAX, INT64_MAX, 0},
        {"9223372036854775808", INT64_MIN, INT64_MAX, 0, -ERANGE},
        {"-9223372036854775808", INT64_MIN, INT64_MAX, INT64_MIN, 0},
        {"-9223372036854775809", INT64_MIN, INT64_MAX, 0, -ERANGE},
        {"-", -1, 5, 0, -EINVAL},
        {"--1", -1, 5, 0, -EINVAL},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        int64_t v = 77;

        assert_int_equal(parse_i64("f", t[i].s, t[i].min, t[i].max, &v, NULL), t[i].rc);
        assert_int_equal(v, t[i].rc ? 77 : t[i].want);
    }
}

UNIT_TEST(booleans_are_parsed)
{
    static const char *const yes[] = {"1", "true", "TRUE", "yes", "On"};
    static const char *const no[] = {"0", "false", "False", "no", "oFF"};
    static const char *const bad[] = {"", "2", "truee", "y", " 1"};
    struct err e = ERR_INIT;

    for (size_t i = 0; i < 5; i++) {
        bool v = false;

        assert_int_equal(parse_bool("f", yes[i], &v, NULL), 0);
        assert_true(v);
        assert_int_equal(parse_bool("f", no[i], &v, NULL), 0);
        assert_false(v);
        assert_int_equal(parse_bool("f", bad[i], &v, &e), -EINVAL);
    }
}

UNIT_TEST(durations_are_parsed)
{
    static const struct {
        const char *s;
        uint64_t want;
        int rc;
    } t[] = {
        {"30", 30000, 0},
        {"0.5", 500, 0},
        {".25", 250, 0},
        {"1.", 1000, 0},
        {"200ms", 200, 0},
        {"5m", 300000, 0},
        {"1h", 3600000, 0},
        {"1.5h", 5400000, 0},
        {"0", 0, 0},
        {"3600001ms", 3600001, 0},
        {"2000h", 0, -ERANGE},
        {"", 0, -EINVAL},
        {".", 0, -EINVAL},
        {"1x", 0, -EINVAL},
        {"1 s", 0, -EINVAL},
        {"-1", 0, -EINVAL},
        {"1.5.5", 0, -EINVAL},
        {"inf", 0, -EINVAL},
        {"99999999999999999999h", 0, -ERANGE},
        {"18446744073709551615", 0, -ERANGE},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        uint64_t v = 77;
        int rc = parse_duration_ms("f", t[i].s, 0, 3600000000u, &v, NULL);

        assert_int_equal(rc, t[i].rc);
        assert_int_equal(v, t[i].rc ? 77 : t[i].want);
    }
}

UNIT_MAIN(NULL, NULL)
