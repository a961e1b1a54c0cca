/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/base/mem.h"
#include "runtime/base/spelling.h"
#include "tests/unit/unit.h"

static const struct {
    const char *a, *b;
    unsigned distance;
} table[] = {
    {"", "", 0},          {"", "abc", 3},
    {"abc", "", 3},       {"hosts", "hosts", 0},
    {"host", "hosts", 1}, {"kitten", "sitting", 3},
    {"flaw", "lawn", 2},  {"FUSION_TRESHOLD", "FUSION_THRESHOLD", 1},
};

UNIT_TEST(distances_are_counted)
{
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        const char *a = table[i].a, *b = table[i].b;

        assert_int_equal(spelling_distance(a, strlen(a), b, strlen(b)),
                         table[i].distance);
        assert_int_equal(spelling_distance(b, strlen(b), a, strlen(a)),
                         table[i].distance);
    }
}

UNIT_TEST(a_word_may_be_the_beginning_of_a_text)
{
    assert_int_equal(spelling_distance("hosts=a", 5, "hosts", 5), 0);
}

UNIT_TEST(long_words_are_far)
{
    char word[57];

    memset(word, 'a', sizeof(word));
    assert_int_equal(spelling_distance(word, 56, word, 56), 0);
    assert_int_equal(spelling_distance(word, 57, word, 57), SPELLING_FAR);
    assert_int_equal(spelling_distance(word, 1, word, 57), SPELLING_FAR);
}

UNIT_MAIN(NULL, NULL)
