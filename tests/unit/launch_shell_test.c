/* SPDX-License-Identifier: Apache-2.0 */
/* The remote shell's words and bytes, by tables. */
#include "runtime/launch/core/shell.h"
#include "tests/unit/launch_fixture.h"

#define MAX_WORDS 12

struct words_row {
    const char *argv[MAX_WORDS];
    const char *host, *command; /* host NULL: refused, command is in the sentence */
    bool has_input;
};

static const struct words_row words_rows[] = {
    {{"b", "true"}, "b", "true", true},
    {{"-x", "b", "a", "b  c", ""}, "b", "a b  c ", true},
    {{"-o", "ConnectionAttempts=10", "b", " orted", "-mca"}, "b", " orted -mca", true},
    {{"-xqn", "-oA=b", "-p22", "-l", "root", "b", "x"}, "b", "x", false},
    {{"user@b", "-n", "x", "-n"}, "b", "x -n", false},
    {{"--", "b", "-x", "--", "-y"}, "b", "-y", true},
    {{"-tt", "fd00::1", "x"}, "fd00::1", "x", true},
    {{"-qo", "A=b", "b", "x"}, "b", "x", true},
    {{NULL}, NULL, "a host is missing", true},
    {{"-x"}, NULL, "a host is missing", true},
    {{"b"}, NULL, "a command is missing after host b", true},
    {{"b", "--"}, NULL, "a command is missing after host b", true},
    {{"-p"}, NULL, "a value is missing after -p", true},
    {{"b", "-o"}, NULL, "a value is missing after -o", true},
    {{"-N", "b", "x"}, NULL, "option -N of ssh is not possible here", true},
    {{"-xW", "b", "x"}, NULL, "option -W of ssh is not possible here", true},
    {{"-\x01", "b", "x"}, NULL, "option -? of ssh", true},
    {{"root@", "x"}, NULL, "host \"\" is not a name", true},
};

UNIT_TEST(options_are_parsed_as_by_ssh)
{
    for (size_t i = 0; i < ARRAY_LEN(words_rows); i++) {
        const struct words_row *row = &words_rows[i];
        char *argv[MAX_WORDS] = {NULL};
        struct shell_words w;
        struct err err = ERR_INIT;
        CLEANUP(strbuf_release) struct strbuf b = {0};
        for (size_t k = 0; row->argv[k]; k++)
            assert_non_null(argv[k] = mem_strdup(row->argv[k]));
        strbuf_init(&b, 1000);
        int rc = shell_words_parse(argv, &w, &err);
        if (row->host) {
            assert_int_equal(rc, 0);
            assert_string_equal(w.host, row->host);
            assert_int_equal(shell_words_join(w.command, &b, &err), 0);
            assert_string_equal(strbuf_str(&b), row->command);
            assert_int_equal(w.has_input, row->has_input);
        } else {
            assert_int_equal(rc, -22);
            assert_non_null(strstr(err.text, row->command));
        }
        for (size_t k = 0; row->argv[k]; k++)
            mem_free(argv[k]);
    }
}

UNIT_TEST(a_command_that_exec_would_refuse_is_refused)
{
    static char text[SHELL_COMMAND_MAX_BYTES + 1];
    char *words[] = {text, NULL};
    struct err err = ERR_INIT;
    memset(text, 'x', SHELL_COMMAND_MAX_BYTES);
    for (size_t max = SHELL_COMMAND_MAX_BYTES; max <= SHELL_MAX_BYTES; max *= 2) {
        CLEANUP(strbuf_release) struct strbuf b = {0}, c = {0};
        char one[] = "y", *more[] = {text, one, NULL};
        strbuf_init(&b, max);
        strbuf_init(&c, max);
        assert_int_equal(shell_words_join(words, &b, &err), 0);
        assert_int_equal(shell_words_join(more, &c, &err), -7);
        assert_non_null(strstr(err.text, "more than 131000 bytes"));
    }
}

UNIT_TEST(a_run_message_survives_the_wire)
{
    char command[] = "echo \"x\"\n; \xff";
    struct shell_run run = {.has_input = true, .from = "a-launcher"}, back;
    struct err err = ERR_INIT;
    CLEANUP(strbuf_release) struct strbuf b = {0};
    strbuf_init(&b, SHELL_MAX_BYTES);
    shell_run_write(&run, command, &b);
    assert_int_equal(shell_run_read((const uint8_t *)strbuf_str(&b), b.n, &back, &err),
                     0);
    assert_string_equal(back.command, command);
    assert_string_equal(back.from, "a-launcher");
    assert_true(back.has_input);
    mem_free(back.command);
    for (size_t n = 0; n < b.n; n++) /* cut anywhere */
        assert_int_equal(
            shell_run_read((const uint8_t *)strbuf_str(&b), n, &back, &err), -71);
    b.p[4] = 2; /* has_input */
    assert_int_equal(shell_run_read((const uint8_t *)strbuf_str(&b), b.n, &back, &err),
                     -71);
    b.p[0] = 2;
    assert_int_equal(shell_run_read((const uint8_t *)strbuf_str(&b), b.n, &back, &err),
                     -71);
    assert_string_equal(err.text, "the remote shell's protocol is 2 there and 1 here");
}

UNIT_TEST(a_number_is_four_bytes)
{
    static const uint8_t p[5] = {2, 1, 0, 0, 3};
    struct err err = ERR_INIT;
    uint32_t n = 0;
    assert_int_equal(shell_number_read(p, 4, &n, &err), 0);
    assert_int_equal(n, 258);
    assert_int_equal(shell_number_read(p, 3, &n, &err), -71);
    assert_int_equal(shell_number_read(p, 5, &n, &err), -71);
}

UNIT_TEST(names_are_found_whole)
{
    assert_true(shell_is_named(
        "\"/usr/bin/hydra_pmi_proxy\" --control-port pi-launcher:1", "pi-launcher"));
    assert_true(shell_is_named("a", "a"));
    assert_true(shell_is_named("x.a --to a", "a"));
    assert_false(shell_is_named("--control-port pi-launcher-2:1", "pi-launcher"));
    assert_false(shell_is_named("my.pi-launcher", "pi-launcher"));
    assert_false(shell_is_named("pi-launcher.pi.ns.svc", "pi-launcher"));
    assert_false(shell_is_named("echo", ""));
    assert_true(shell_is_own_name("a", "a"));
    assert_true(shell_is_own_name("a.b.svc", "a"));
    assert_false(shell_is_own_name("ab", "a"));
    assert_false(shell_is_own_name("a", "ab"));
    assert_false(shell_is_own_name("a", ""));
}

UNIT_MAIN(NULL, NULL)
