/* SPDX-License-Identifier: Apache-2.0 */
/* Quantities: canonical text, sums, multiples, bounds. */
#include "tests/unit/unit.h"

#include "operator/core/quantity.h"
#include "runtime/base/mem.h"

static struct quantity quantity_parsed(const char *s)
{
    struct quantity q = {0};
    struct err err = ERR_INIT;

    if (quantity_parse(s, &q, &err) < 0)
        fail_msg("%s: %s", s, err.text);
    return q;
}

static void
quantity_must_print(const struct quantity *q, const char *from, const char *want)
{
    char got[QUANTITY_SIZE];

    if (strcmp(quantity_format(q, got), want) != 0)
        fail_msg("%s gives %s, wanted %s", from, got, want);
}

UNIT_TEST(text_is_canonical)
{
    static const struct {
        const char *in, *out;
    } row[] = {
        {"0", "0"},
        {"0Ki", "0"},
        {"0.0", "0"},
        {"1", "1"},
        {"+1", "1"},
        {"007", "7"},
        {"10", "10"},
        {"1000", "1k"},
        {"1500", "1500"},
        {"1200000", "1200k"},
        {"0.5", "500m"},
        {".5", "500m"},
        {"5.", "5"},
        {"1.5", "1500m"},
        {"1500m", "1500m"},
        {"2000m", "2"},
        {"100.5m", "100500u"},
        {"1n", "1n"},
        {"0.1n", "1n"}, /* no less than that: rounded up */
        {"1.0000000001", "1000000001n"},
        {"1.0000000000", "1"},
        {"0.9999999999", "1"},
        {"1k", "1k"},
        {"1000k", "1M"},
        {"1E", "1E"},
        {"18.4E", "18400P"},
        {"1Ki", "1Ki"},
        {"1024Ki", "1Mi"},
        {"1Gi", "1Gi"},
        {"1536Mi", "1536Mi"},
        {"0.5Gi", "512Mi"},
        {"1.5Ki", "1536"},
        {"2.25Mi", "2304Ki"},
        {"0.5Ki", "512"}, /* below 1024 there is no binary form */
        {"0.0001Ki", "102400u"},
        {"1.0001Ki", "1024102400u"},
        {"7Ei", "7Ei"},
        {"8Ei", "9223372036854775807"}, /* the most that a binary one can be */
        {"999999Ei", "9223372036854775807"},
        {"1e3", "1e3"},
        {"1E3", "1e3"},
        {"12e2", "1200"},
        {"1e+3", "1e3"},
        {"15e-1", "1500e-3"},
        {"1e-20", "1e-9"},
        {"1e0", "1"},
        {"0.000000000000000000000001e24", "1"},
        {"18446744073709551615", "18446744073709551615"},
    };

    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct quantity q = quantity_parsed(row[i].in);

        quantity_must_print(&q, row[i].in, row[i].out);
        q = quantity_parsed(row[i].out); /* and canonical text is its own */
        quantity_must_print(&q, row[i].out, row[i].out);
    }
}

UNIT_TEST(bad_text_is_refused)
{
    static const struct {
        const char *in;
        int rc;
    } row[] = {{"", -EINVAL},     {"-1", -EINVAL},    {"m", -EINVAL},
               {".", -EINVAL},    {"1.2.3", -EINVAL}, {"1 Gi", -EINVAL},
               {"1gi", -EINVAL},  {"1K", -EINVAL},    {"1kk", -EINVAL},
               {"1e", -EINVAL},   {"1e+", -EINVAL},   {"1e1.5", -EINVAL},
               {"0x10", -EINVAL}, {"++1", -EINVAL},   {"18446744073709551616", -ERANGE},
               {"20E", -ERANGE},  {"1e20", -ERANGE},  {"1e99999999999", -ERANGE},
               {"1e999", -ERANGE}};
    char long_one[200];

    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct quantity q = {.units = 7};
        struct err err = ERR_INIT;

        if (quantity_parse(row[i].in, &q, &err) != row[i].rc)
            fail_msg("%s: not %d", row[i].in, row[i].rc);
        assert_true(*err.text);
        assert_int_equal(q.units, 7);
    }
    memset(long_one, '1', sizeof(long_one));
    long_one[sizeof(long_one) - 1] = '\0';
    assert_int_equal(quantity_parse(long_one, &(struct quantity){0}, NULL), -EINVAL);
}

/* The widest input that is taken, with the largest suffix, stays within its buffer. */
UNIT_TEST(widest_text_is_taken)
{
    char text[128];
    struct quantity q;

    memset(text, '9', 98);
    memcpy(text + 98, "Ei", 3);
    assert_int_equal(quantity_parse(text, &q, NULL), 0);
    quantity_must_print(&q, "99...Ei", "9223372036854775807");
    text[0] = '.';
    assert_int_equal(quantity_parse(text, &q, NULL), 0);
    quantity_must_print(&q, ".99...Ei", "1Ei"); /* rounded up */
}

UNIT_TEST(sums_keep_the_first_form)
{
    static const struct {
        const char *a, *b, *sum;
    } row[] = {
        {"1Gi", "512Mi", "1536Mi"},
        {"512Mi", "512Mi", "1Gi"},
        {"500m", "500m", "1"},
        {"1", "0.5", "1500m"},
        {"0", "1Gi", "1Gi"},
        {"1Gi", "0", "1Gi"},
        {"1Gi", "1G", "2073741824"},
        {"1G", "1Gi", "2073741824"},
        {"1Gi", "500m", "1073741824500m"},
        {"1e3", "1", "1001"},
        {"999999999n", "1n", "1"},
        {"1Ki", "1n", "1024000000001n"},
    };

    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct quantity a = quantity_parsed(row[i].a), b = quantity_parsed(row[i].b);

        assert_int_equal(quantity_add(&a, &b), 0);
        quantity_must_print(&a, row[i].a, row[i].sum);
    }
}

UNIT_TEST(multiples_are_exact)
{
    static const struct {
        const char *q;
        uint32_t n;
        const char *product;
    } row[] = {
        {"1Gi", 3, "3Gi"},   {"512Mi", 1024, "512Gi"},
        {"100m", 7, "700m"}, {"333m", 3, "999m"},
        {"250m", 8, "2"},    {"1n", 1000000000, "1"},
        {"2", 0, "0"},       {"999999999n", UINT32_MAX, "4294967290705032705n"},
        {"4Ei", 2, "8Ei"}, /* capped only where it is written */
    };

    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct quantity q = quantity_parsed(row[i].q);

        assert_int_equal(quantity_multiply(&q, row[i].n), 0);
        quantity_must_print(&q, row[i].q, row[i].product);
    }
}

UNIT_TEST(overflow_is_reported_and_changes_nothing)
{
    struct quantity a = quantity_parsed("18446744073709551615"),
                    b = quantity_parsed("1");
    struct quantity c = quantity_parsed("18446744073709551615.5"),
                    d = quantity_parsed("500m");

    assert_int_equal(quantity_add(&a, &b), -ERANGE);
    assert_int_equal(quantity_multiply(&a, 2), -ERANGE);
    quantity_must_print(&a, "2^64-1", "18446744073709551615");
    assert_int_equal(quantity_add(&c, &d), -ERANGE);
    assert_int_equal(quantity_multiply(&c, 2), -ERANGE);
    quantity_must_print(&c, "2^64-0.5", "18446744073709551615500m");
}

UNIT_MAIN(NULL, NULL)
