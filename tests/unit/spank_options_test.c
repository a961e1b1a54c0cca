/* SPDX-License-Identifier: Apache-2.0 */
/* --hvd[=...] and plugstack.conf: what is accepted, and the error message for what is
 * not. */
#include "tests/unit/unit.h"

#include "runtime/base/mem.h"
#include "spank_plugin/options.h"

UNIT_TEST(absent_empty_and_null_text_are_alike)
{
    const char *const texts[] = {NULL, "", "(null)"};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct step_options o = {
            .start_timeout_ms = 7, .iface = "x", .is_verbose = true};
        struct err err = ERR_INIT;
        assert_int_equal(step_options_parse(texts[i], &o, &err), 0);
        assert_int_equal(o.start_timeout_ms, 0);
        assert_string_equal(o.iface, "");
        assert_false(o.is_verbose);
    }
}

UNIT_TEST(all_keys_are_read)
{
    struct step_options o;
    struct err err = ERR_INIT;
    assert_int_equal(step_options_parse("timeout=2m,iface=ib0,verbose", &o, &err), 0);
    assert_int_equal(o.start_timeout_ms, 120000);
    assert_string_equal(o.iface, "ib0");
    assert_true(o.is_verbose);
    assert_int_equal(o.roles.framework, FRAMEWORK_HVD);
    assert_int_equal(step_options_parse("framework=tf-ps,ps=2,evaluator", &o, &err), 0);
    assert_int_equal(o.roles.framework, FRAMEWORK_TF_PS);
    assert_int_equal(o.roles.n_ps, 2);
    assert_true(o.roles.has_evaluator);
    assert_int_equal(step_options_parse("verbose=no", &o, &err), 0);
    assert_false(o.is_verbose);
    assert_int_equal(o.start_timeout_ms, 0); /* nothing left of the call before */
}

UNIT_TEST(bad_values_are_refused_with_the_key_and_what_is_allowed)
{
    static const struct {
        const char *arg, *in_text, *also;
    } rows[] = {
        {"tiemout=3", "\"tiemout\" is not a key",
         "timeout=DURATION, iface=NAME, verbose, framework=NAME, ps=N and evaluator"},
        {"timeout", "timeout requires a value", "timeout=10m"},
        {"timeout=soon", "timeout", "\"soon\""},
        {"timeout=0", "timeout", "\"0\""},
        {"iface=", "iface", "network interface"},
        {"iface=eth0/1", "eth0/1", "network interface"},
        {"iface=a-name-of-16-chr", "a-name-of-16-chr", "1 to 15 characters"},
        {"verbose=maybe", "verbose", "\"maybe\""},
        {"framework=tf", "--hvd: framework \"tf\"", "tf-multiworker or tf-ps"},
        {"framework", "--hvd: framework \"\"", "tf-multiworker or tf-ps"},
        {"framework=tf-ps,ps=0", "--hvd: ps", "0"},
        {"ps=2", "--hvd: framework horovod", "has no parameter servers, not 2"},
        {"evaluator", "--hvd: framework horovod", "has no evaluator"},
        {"verbose,", "\"\" is not a key", "allowed"},
        {",", "\"\" is not a key", "allowed"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct step_options o = {.start_timeout_ms = 7};
        struct err err = ERR_INIT;
        assert_true(step_options_parse(rows[i].arg, &o, &err) < 0);
        assert_non_null(strstr(err.text, rows[i].in_text));
        assert_non_null(strstr(err.text, rows[i].also));
        assert_int_equal(o.start_timeout_ms, 7); /* untouched on failure */
    }
}

UNIT_TEST(overlong_value_is_refused)
{
    char text[2000];
    struct step_options o;
    struct err err = ERR_INIT;
    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    assert_int_equal(step_options_parse(text, &o, &err), -EINVAL);
    assert_non_null(strstr(err.text, "1023 bytes"));
}

UNIT_TEST(plugstack_defaults_and_paths)
{
    char dir[] = "dir=/srv/rm", run[] = "run_dir=/run/x";
    char *const argv[] = {dir, run};
    struct plugin_config c;
    struct err err = ERR_INIT;
    assert_int_equal(plugin_config_parse(0, NULL, &c, &err), 0);
    assert_string_equal(c.dir, "/opt/ringmaster");
    assert_false(c.dir_required);
    assert_string_equal(c.run_dir, "/run/ringmaster");
    assert_int_equal(plugin_config_parse(2, argv, &c, &err), 0);
    assert_string_equal(c.dir, "/srv/rm");
    assert_true(c.dir_required);
    assert_string_equal(c.run_dir, "/run/x");
}

UNIT_TEST(plugstack_mistakes_are_named)
{
    static const struct {
        const char *arg, *in_text;
    } rows[] = {
        {"dri=/x",
         "\"dri=/x\" is not an argument of spank_hvd.so; allowed are dir=PATH"},
        {"dir=opt", "dir: \"opt\" is not an absolute path"},
        {"dir=/a:/b", "dir: \"/a:/b\""},
        {"run_dir=", "run_dir: \"\""},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char text[64];
        char *const argv[] = {strcpy(text, rows[i].arg)};
        struct plugin_config c = {.dir = "unchanged"};
        struct err err = ERR_INIT;
        assert_int_equal(plugin_config_parse(1, argv, &c, &err), -EINVAL);
        assert_non_null(strstr(err.text, rows[i].in_text));
        assert_string_equal(c.dir, "unchanged");
    }
}

UNIT_MAIN(NULL, NULL)
