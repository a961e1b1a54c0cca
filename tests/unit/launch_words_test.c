/* SPDX-License-Identifier: Apache-2.0 */
/* Options of hvd-agent's subcommands, by a table. */
#include "runtime/launch/core/words.h"
#include "tests/unit/launch_fixture.h"

#define MAX_WORDS 6

static const struct row {
    const char *argv[MAX_WORDS];
    ssize_t next; /* the first word that is no option; negative: refused */
    const char *file, *port;
    const char *sentence;
} rows[] = {
    {{NULL}, 0, "kept", NULL, NULL},
    {{"--file", "a"}, 2, "a", NULL, NULL},
    {{"--file=a", "--port", "1", "x"}, 3, "a", "1", NULL},
    {{"--file=", "--file=a=b"}, 2, "a=b", NULL, NULL},
    {{"--port=1", "--port=2"}, 2, "kept", "2", NULL},
    {{"--", "--port=1"}, 0, "kept", NULL, NULL},
    {{"--port", "--", "--"}, 2, "kept", "--", NULL},
    {{"x", "--file=a"}, 0, "kept", NULL, NULL},
    {{"-p", "1"}, 0, "kept", NULL, NULL},
    {{"--file"}, -EINVAL, NULL, NULL, "a value is missing after --file"},
    {{"--fil=a"}, -EINVAL, NULL, NULL, "unknown option --fil=a"},
    {{"--files=a"}, -EINVAL, NULL, NULL, "unknown option --files=a"},
    {{"--port=1", "--help"}, -EINVAL, NULL, NULL, "unknown option --help"},
};

UNIT_TEST(options_are_taken_up_to_the_first_other_word)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        static const char *const names[] = {"--file", "--port"};
        const struct row *row = &rows[i];
        const char *values[] = {"kept", NULL};
        char *argv[MAX_WORDS] = {NULL};
        struct err err = ERR_INIT;
        for (size_t k = 0; row->argv[k]; k++)
            assert_non_null(argv[k] = mem_strdup(row->argv[k]));
        ssize_t next = words_take(argv, names, values, ARRAY_LEN(names), &err);
        assert_int_equal(next, row->next);
        if (row->sentence) {
            assert_string_equal(err.text, row->sentence);
        } else {
            assert_string_equal(values[0], row->file);
            assert_int_equal(!values[1], !row->port);
            if (row->port)
                assert_string_equal(values[1], row->port);
        }
        for (size_t k = 0; argv[k]; k++)
            mem_free(argv[k]);
    }
}

UNIT_MAIN(NULL, NULL)
