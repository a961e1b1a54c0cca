/* SPDX-License-Identifier: Apache-2.0 */
/* Names of TensorFlow's operations. */
#include "tests/unit/unit.h"

#include "runtime/tensorflow/name.h"

UNIT_TEST(scopes_end_at_the_last_slash)
{
    static const struct {
        const char *name;
        size_t length;
    } cases[] = {{"", 0}, {"x", 0}, {"/", 1}, {"a/x", 2}, {"a/b/x", 4}, {"a/b/", 4}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(name_scope_length(cases[i].name, strlen(cases[i].name)),
                         cases[i].length);
    assert_int_equal(name_scope_length("a/b/x", 3), 2); /* no more than its length */
}

UNIT_TEST(short_names_are_as_they_are)
{
    char name[64];

    name_make(name, sizeof(name), "allreduce", "scope/x", 7);
    assert_string_equal(name, "allreduce.scope/x");
    name_make(name, sizeof(name), "join", "xyz", 1); /* need not end with NUL */
    assert_string_equal(name, "join.x");
    name_make(name, sizeof(name), "join", "", 0);
    assert_string_equal(name, "join.");
}

/* Whatever the length: it fits, keeps its end, and another beginning is another name.
 */
UNIT_TEST(long_names_keep_their_end_and_a_hash_of_all)
{
    char given[200], other[200], name[64], again[64], third[64];

    for (size_t n = 1; n < sizeof(given); n++) {
        memset(given, 'a', n);
        given[n - 1] = 'z';
        memcpy(other, given, n);
        other[0] = 'b';
        name_make(name, sizeof(name), "allgather", given, n);
        name_make(again, sizeof(again), "allgather", given, n);
        name_make(third, sizeof(third), "allgather", other, n);
        assert_true(strlen(name) < sizeof(name));
        assert_string_equal(name, again);
        assert_string_not_equal(name, third);
        assert_int_equal(strncmp(name, "allgather.", 10), 0);
        if (n > 1)
            assert_int_equal(name[strlen(name) - 1], 'z');
    }
    assert_non_null(strchr(name, '~'));
}

UNIT_MAIN(NULL, NULL)
