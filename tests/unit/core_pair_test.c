/* SPDX-License-Identifier: Apache-2.0 */
/* Pairs of ranks: their numbers, and the names of what travels between them. */
#include "runtime/core/pair.h"
#include "tests/unit/unit.h"

static const struct {
    uint32_t a, b, number;
} pairs[] = {
    {0, 1, 0},
    {0, 2, 1},
    {1, 2, 2},
    {0, 3, 3},
    {2, 3, 5},
    {0, 65535, 2147385345},
    {65534, 65535, 2147450879},
};

UNIT_TEST(a_pair_has_its_number_in_either_order)
{
    uint32_t ranks[2];

    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        uint32_t id = PAIR_BIT | pairs[i].number;

        assert_int_equal(pair_of(pairs[i].a, pairs[i].b), id);
        assert_int_equal(pair_of(pairs[i].b, pairs[i].a), id);
        assert_true(pair_is(id));
        pair_ranks(id, ranks);
        assert_int_equal(ranks[0], pairs[i].a);
        assert_int_equal(ranks[1], pairs[i].b);
        assert_true(pair_has(id, pairs[i].a) && pair_has(id, pairs[i].b));
        assert_false(pair_has(id, pairs[i].b + 1));
    }
}

UNIT_TEST(every_pair_has_a_number_of_its_own)
{
    uint32_t next = PAIR_BIT, ranks[2];

    for (uint32_t b = 1; b < 300; b++)
        for (uint32_t a = 0; a < b; a++, next++) {
            assert_int_equal(pair_of(a, b), next);
            pair_ranks(next, ranks);
            assert_true(ranks[0] == a && ranks[1] == b);
        }
}

UNIT_TEST(other_numbers_are_no_pairs)
{
    uint32_t ranks[2];

    assert_false(pair_is(0));
    assert_false(pair_is(INT32_MAX));
    assert_false(pair_has(0, 0));
    assert_false(pair_has(3, 0));
    for (uint32_t id = pair_of(65534, 65535) + 1; id != 0; id++) {
        pair_ranks(id, ranks);
        assert_int_equal(ranks[1], PAIR_MAX_RANKS); /* of no world */
    }
}

UNIT_TEST(a_name_contains_the_direction)
{
    char name[TENSOR_NAME_MAX + 1], got[TENSOR_NAME_MAX];

    assert_true(pair_name("x", 0, 12, got));
    assert_string_equal(got, "x (0 -> 12)");
    assert_int_equal(pair_name_max(0, 12), TENSOR_NAME_MAX - 1 - strlen(" (0 -> 12)"));
    assert_int_equal(pair_name_max(65535, 65534), TENSOR_NAME_MAX - 1 - 17);
    memset(name, 'x', sizeof(name));
    name[pair_name_max(3, 10)] = 0;
    assert_true(pair_name(name, 3, 10, got));
    assert_int_equal(strlen(got), TENSOR_NAME_MAX - 1);
    assert_string_equal(got + pair_name_max(3, 10), " (3 -> 10)");
    name[pair_name_max(3, 10)] = 'x';
    name[pair_name_max(3, 10) + 1] = 0;
    assert_false(pair_name(name, 3, 10, got));
    memset(name, 'x', TENSOR_NAME_MAX);
    name[TENSOR_NAME_MAX] = 0;
    assert_false(pair_name(name, 0, 1, got));
}

UNIT_MAIN(NULL, NULL)
