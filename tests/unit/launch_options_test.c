/* SPDX-License-Identifier: Apache-2.0 */
/* options.c: Horovod's spellings, and a sentence for each mistake. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/base/mem.h"
#include "runtime/launch/core/options.h"

#define MAX_WORDS 16

/* Splits at blanks; words live in a static buffer. */
static int words(const char *line, char **argv)
{
    static char text[512];
    int n = 0;
    strncpy(text, line, sizeof(text) - 1);
    for (char *w = strtok(text, " "); w && n < MAX_WORDS - 1; w = strtok(NULL, " "))
        argv[n++] = w;
    argv[n] = NULL;
    return n;
}

static void options_take_all_spellings(void **state)
{
    char *argv[MAX_WORDS];
    struct err err = ERR_INIT;
    struct run_options o;
    static const char *const same[] = {
        "horovodrun -np 4 -H localhost:4 python -np 7",
        "horovodrun --num-proc 4 --hosts localhost:4 python -np 7",
        "horovodrun -np=4 --hosts=localhost:4 -- python -np 7",
        "horovodrun --gloo --num-proc=4 -H localhost:4 -- python -np 7",
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(same); i++) {
        int n = words(same[i], argv);
        assert_int_equal(options_parse(n, argv, &o, &err), 0);
        assert_int_equal(o.np, 4);
        assert_string_equal(o.hosts, "localhost:4");
        assert_string_equal(o.command[0], "python");
        assert_string_equal(o.command[1],
                            "-np"); /* after the command nothing is ours */
        assert_null(o.command[3]);
    }
}

static void options_have_defaults_and_values(void **state)
{
    char *argv[MAX_WORDS];
    struct err err = ERR_INIT;
    struct run_options o;
    (void)state;
    assert_int_equal(options_parse(words("x -np 2 a", argv), argv, &o, &err), 0);
    assert_null(o.hosts);
    assert_false(o.verbose);
    assert_int_equal(o.start_timeout_ms, 0);
    int n =
        words("x --start-timeout 1.5 --verbose -prefix-timestamp --output-filename d "
              "-hostfile f --log-level DEBUG -v -h",
              argv);
    assert_int_equal(options_parse(n, argv, &o, &err), 0);
    assert_int_equal(o.start_timeout_ms, 1500);
    assert_true(o.verbose && o.with_timestamp && o.wants_version && o.wants_help);
    assert_string_equal(o.output_dir, "d");
    assert_string_equal(o.hostfile, "f");
    assert_string_equal(o.log_level, "DEBUG");
    assert_null(o.command[0]);
}

static void each_mistake_has_its_sentence(void **state)
{
    char *argv[MAX_WORDS];
    struct run_options o;
    static const struct {
        const char *line, *part;
    } table[] = {
        {"x --nump-roc 2 a", "unknown option --nump-roc; the nearest is --num-proc"},
        {"x --host a:1 a", "the nearest is --hosts"},
        {"x -n 2 a", "the nearest is -np"},
        {"x --outputfilename d a", "the nearest is --output-filename"},
        {"x --verbos a", "the nearest is --verbose"},
        {"x -np", "-np needs a value: N"},
        {"x -np 0 a", "-np"},
        {"x -np two a", "two"},
        {"x -np 99999 a", "4096"},
        {"x --verbose=1 a", "--verbose takes no value"},
        {"x --start-timeout soon a", "soon"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct err err = ERR_INIT;
        int n = words(table[i].line, argv);
        assert_true(options_parse(n, argv, &o, &err) < 0);
        if (!strstr(err.text, table[i].part))
            fail_msg("%s: %s", table[i].line, err.text);
    }
}

static void help_names_the_program_and_every_option(void **state)
{
    struct strbuf out;
    static const char *const parts[] = {"usage: perseusrun", "-np, --num-proc N",
                                        "-H, --hosts", "--output-filename DIR",
                                        "128 + signal"};
    (void)state;
    strbuf_init(&out, 65536);
    options_help("perseusrun", &out);
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        assert_non_null(strstr(strbuf_str(&out), parts[i]));
    strbuf_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_take_all_spellings),
        cmocka_unit_test(options_have_defaults_and_values),
        cmocka_unit_test(each_mistake_has_its_sentence),
        cmocka_unit_test(help_names_the_program_and_every_option),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
