/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/mem.h"
#include "runtime/base/spelling.h"

static const struct {
    const char *a, *b;
    unsigned distance;
} table[] = {
    {"", "", 0},          {"", "abc", 3},
    {"abc", "", 3},       {"hosts", "hosts", 0},
    {"host", "hosts", 1}, {"kitten", "sitting", 3},
    {"flaw", "lawn", 2},  {"FUSION_TRESHOLD", "FUSION_THRESHOLD", 1},
};

static void distances_are_counted(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        const char *a = table[i].a, *b = table[i].b;

        assert_int_equal(spelling_distance(a, strlen(a), b, strlen(b)),
                         table[i].distance);
        assert_int_equal(spelling_distance(b, strlen(b), a, strlen(a)),
                         table[i].distance);
    }
}

static void a_word_may_be_the_beginning_of_a_text(void **state)
{
    (void)state;
    assert_int_equal(spelling_distance("hosts=a", 5, "hosts", 5), 0);
}

static void long_words_are_far(void **state)
{
    char word[57];

    (void)state;
    memset(word, 'a', sizeof(word));
    assert_int_equal(spelling_distance(word, 56, word, 56), 0);
    assert_int_equal(spelling_distance(word, 57, word, 57), SPELLING_FAR);
    assert_int_equal(spelling_distance(word, 1, word, 57), SPELLING_FAR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distances_are_counted),
        cmocka_unit_test(a_word_may_be_the_beginning_of_a_text),
        cmocka_unit_test(long_words_are_far),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
