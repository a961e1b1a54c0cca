/* SPDX-License-Identifier: Apache-2.0 */
/* When a rank that waits at start says so, and what it says. */
#include "tests/unit/unit.h"

#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/contract/waiting.h"

UNIT_TEST(a_line_is_due_after_10_s_and_then_every_minute)
{
    static const struct {
        uint64_t waited_ns, next_s;
    } t[] = {
        {0, 10},
        {10 * NS_PER_S - 1, 10},
        {10 * NS_PER_S, 70},
        {11 * NS_PER_S, 70},
        {70 * NS_PER_S - 1, 70},
        {70 * NS_PER_S, 130},
        {599 * NS_PER_S, 610},
        {3600 * NS_PER_S, 3610},
    };
    const uint64_t since_ns = 12345678901;

    for (size_t i = 0; i < ARRAY_LEN(t); i++)
        assert_int_equal(waiting_next_ns(since_ns, since_ns + t[i].waited_ns),
                         since_ns + t[i].next_s * NS_PER_S);
}

UNIT_TEST(few_ranks_write_the_line)
{
    static const struct {
        uint32_t rank, first_missing; /* of 4 ranks; 4: unknown */
        bool is_writer;
    } t[] = {
        /* rank 0 is there */
        {0, 1, true},
        {1, 2, false},
        {2, 3, false},
        {3, 1, false},
        /* rank 0 is missing */
        {0, 0, false},
        {1, 0, true},
        {2, 0, true},
        {3, 0, false},
        /* unknown */
        {0, 4, true},
        {1, 4, true},
        {3, 4, false},
    };
    uint32_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(t); i++)
        assert_int_equal(waiting_is_writer(t[i].rank, 4, t[i].first_missing),
                         t[i].is_writer);
    for (uint32_t r = 1; r < 1000; r++)
        n += waiting_is_writer(r, 1000, 0);
    assert_int_equal(n, 10);
}

UNIT_TEST(the_line_names_the_first_missing_rank)
{
    static const struct {
        uint32_t size, first_missing;
        const char *text;
    } t[] = {
        {2, 1, "waiting for rank 1 of 2"},
        {2, 0, "waiting for rank 0 of 2"},
        {4, 1, "waiting for rank 1 of 4 (the first that is missing)"},
        {4, 4, "waiting for some of 4 ranks"},
    };
    char text[80];

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        waiting_text(t[i].size, t[i].first_missing, text, sizeof(text));
        assert_string_equal(text, t[i].text);
    }
    waiting_text(UINT32_MAX, UINT32_MAX - 1, text, sizeof(text));
    assert_true(strlen(text) < sizeof(text) - 1); /* the longest fits */
}

UNIT_MAIN(NULL, NULL)
