/* SPDX-License-Identifier: Apache-2.0 */
/* --hvd[=...]: what is accepted, how several values are one, and the error message for
 * what is not. */
#include "tests/unit/unit.h"

#include "runtime/base/mem.h"
#include "spank_plugin/options.h"
#include "tests/unit/generated.h"

static struct step_options added(const char *arg)
{
    struct step_options o = {0};
    struct err err = ERR_INIT;
    if (step_options_add(&o, "--hvd", arg, &err))
        fail_msg("%s: %s", arg, err.text);
    return o;
}

static void is_setting(const struct step_options *o, uint32_t setting, const char *want)
{
    const char *got = step_options_get(o, setting);
    if (want) {
        assert_non_null(got);
        assert_string_equal(got, want);
    } else {
        assert_null(got);
    }
}

UNIT_TEST(absent_empty_and_null_text_are_alike)
{
    const char *const texts[] = {NULL, "", "(null)"};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct step_options o = added(texts[i]);
        assert_true(o.is_on);
        assert_int_equal(o.n, 0);
    }
}

/* In the form that the variable has. */
UNIT_TEST(each_key_sets_its_variable)
{
    static const struct {
        const char *arg;
        uint32_t setting;
        const char *want;
    } rows[] = {
        {"timeout=2m", KNOB_HOROVOD_START_TIMEOUT, "120"},
        {"timeout=500ms", KNOB_HOROVOD_START_TIMEOUT, "0.500"},
        {"iface=ib0", OWN_IFACE, "ib0"},
        {"verbose", OWN_VERBOSE, "1"},
        {"verbose=1", OWN_VERBOSE, "1"},
        {"verbose=no", OWN_VERBOSE, "0"},
        {"report", KNOB_HVD_REPORT, "1"},
        {"report=off", KNOB_HVD_REPORT, "0"},
        {"dry-run", KNOB_HVD_DRY_RUN, "1"},
        {"log-level=debug", KNOB_HOROVOD_LOG_LEVEL, "DEBUG"},
        {"output=/scratch/out", OWN_OUTPUT, "/scratch/out"},
        {"comment=progress", OWN_COMMENT, "progress"},
        {"timeline=/x/t.json", KNOB_HOROVOD_TIMELINE, "/x/t.json"},
        {"timeline=\"/x/a,b=c.json\"", KNOB_HOROVOD_TIMELINE, "/x/a,b=c.json"},
        {"autotune=yes", KNOB_HOROVOD_AUTOTUNE, "1"},
        {"fusion=64", KNOB_HOROVOD_FUSION_THRESHOLD, "67108864"},
        {"compression=topk:ratio=0.001", KNOB_HVD_COMPRESSION, "topk:ratio=0.001"},
        {"backend=tcp", KNOB_HVD_TRANSPORT, "tcp"},
        {"nancheck=true", KNOB_HVD_NANCHECK, "1"},
        {"framework=tf-ps", OWN_FRAMEWORK, "tf-ps"},
        {"framework=tf-ps,ps=2", OWN_PS, "2"},
        {"evaluator", OWN_EVALUATOR, "1"},
        {"elastic=no", KNOB_HOROVOD_ELASTIC, "0"},
        {"HOROVOD_CYCLE_TIME=0.5", KNOB_HOROVOD_CYCLE_TIME, "0.5"},
        {"HOROVOD_THREAD_AFFINITY=\"0,4,8\",verbose", KNOB_HOROVOD_THREAD_AFFINITY,
         "0,4,8"},
        {"PERSEUS_ALLREDUCE_FUSION=32", KNOB_PERSEUS_ALLREDUCE_FUSION, "32"},
        {"HVD_DATA_CRC", KNOB_HVD_DATA_CRC, "1"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct step_options o = added(rows[i].arg);
        is_setting(&o, rows[i].setting, rows[i].want);
    }
}

UNIT_TEST(bad_values_are_refused_with_the_key_and_what_is_allowed)
{
    static const struct {
        const char *arg, *in_text, *also;
    } rows[] = {
        {"tiemout=3", "--hvd: \"tiemout\" is not a key; the nearest is timeout",
         "--hvd=help"},
        {"log=debug", "\"log\" is not a key; the nearest is log-level", ""},
        {"xyzzy", "\"xyzzy\" is not a key (--hvd=help lists all)", ""},
        {"HOROVOD_CYCLE_TIM=1", "the nearest is HOROVOD_CYCLE_TIME", ""},
        {"HOROVOD_RANK=1", "\"HOROVOD_RANK\" is not a key (", ""},
        {"LD_PRELOAD=/x.so", "\"LD_PRELOAD\" is not a key (", ""},
        {"timeout", "timeout requires a value: timeout=SECONDS", ""},
        {"timeout=", "timeout requires a value: timeout=SECONDS", ""},
        {"HOROVOD_CYCLE_TIME", "HOROVOD_CYCLE_TIME requires a value", ""},
        {"timeout=soon", "--hvd: timeout=soon", "duration"},
        {"timeout=0", "--hvd: timeout=0", "0.001"},
        {"timeout=2d", "--hvd: timeout=2d", ""},
        {"timeout=25h", "--hvd: timeout=25h must be <= 86400", ""},
        {"iface=eth0/1", "eth0/1", "network interface"},
        {"iface=a-name-of-16-chr", "a-name-of-16-chr", "1 to 15 characters"},
        {"verbose=maybe", "--hvd: verbose=maybe", "true or false"},
        {"verbose=2", "--hvd: verbose=2", "true or false"},
        {"log-level=loud", "--hvd: log-level=loud", "TRACE|DEBUG"},
        {"fusion=64M", "--hvd: fusion=64M", "whole number"},
        {"compression=zip", "--hvd: HVD_COMPRESSION", "zip"},
        {"backend=nccl", "--hvd: HVD_TRANSPORT: \"nccl\"", "auto tcp"},
        {"HOROVOD_CYCLE_TIME=fast", "--hvd: HOROVOD_CYCLE_TIME: \"fast\"",
         "milliseconds"},
        {"comment=on", "--hvd: comment=on", "off, failure and progress"},
        {"comment", "comment requires a value: comment=off|failure|progress", ""},
        {"elastic", "--hvd: HOROVOD_ELASTIC=1: this job keeps its size", ""},
        {"HOROVOD_ELASTIC=1", "HOROVOD_ELASTIC=1: this job keeps its size", ""},
        {"HOROVOD_SECRET_KEY=x", "HOROVOD_SECRET_KEY has no effect", "visible"},
        {"framework=tf", "--hvd: framework=tf", "tf-multiworker|tf-ps"},
        {"framework", "framework requires a value", "tf-multiworker|tf-ps"},
        {"framework=tf-ps,ps=0", "--hvd: ps=0", "1"},
        {"verbose,", "\"\" is not a key", ""},
        {",", "\"\" is not a key", ""},
        {"verbose,,report", "\"\" is not a key", ""},
        {"HOROVOD_THREAD_AFFINITY=0,4",
         "\"4\" is not a key; a value with commas is put in double quotes", ""},
        {"timeline=\"/x", "double quotes", ""},
        {"timeline=\"/x\"y", "double quotes", ""},
        {"timeline=a\"b", "no double quote", ""},
        {"timeline=a\nb", "no control character", ""},
        {"verbose,verbose", "--hvd: verbose is given twice", ""},
        {"timeout=5,HOROVOD_START_TIMEOUT=6", "HOROVOD_START_TIMEOUT is given twice",
         ""},
        {"off,verbose", "\"off\" stands alone", ""},
        {"verbose,help", "\"help\" stands alone", ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct step_options o = added("timeout=7");
        struct err err = ERR_INIT;
        if (step_options_add(&o, "--hvd", rows[i].arg, &err) >= 0)
            fail_msg("%s is accepted", rows[i].arg);
        if (!strstr(err.text, rows[i].in_text) || !strstr(err.text, rows[i].also))
            fail_msg("%s: %s", rows[i].arg, err.text);
        assert_int_equal(o.n, 1); /* unchanged */
        is_setting(&o, KNOB_HOROVOD_START_TIMEOUT, "7");
    }
}

UNIT_TEST(keys_that_do_not_belong_together_are_refused)
{
    static const struct {
        const char *arg, *in_text;
    } rows[] = {
        {"ps=2", "--hvd: framework horovod has no parameter servers, not 2"},
        {"evaluator", "--hvd: framework horovod has no evaluator"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct step_options o = added(rows[i].arg);
        struct err err = ERR_INIT;
        assert_true(step_options_check(&o, &err) < 0);
        assert_non_null(strstr(err.text, rows[i].in_text));
    }
    struct step_options o = added("framework=tf-ps,ps=2,evaluator");
    const struct tf_roles roles = step_options_roles(&o);
    assert_int_equal(step_options_check(&o, NULL), 0);
    assert_int_equal(roles.framework, FRAMEWORK_TF_PS);
    assert_int_equal(roles.n_ps, 2);
    assert_true(roles.has_evaluator);
}

UNIT_TEST(a_later_value_adds_its_keys_and_replaces_equal_ones)
{
    struct step_options o = added("fusion=1,report");
    struct err err = ERR_INIT;
    assert_int_equal(step_options_add(&o, "--hvd", "fusion=2,nancheck", &err), 0);
    assert_int_equal(o.n, 3);
    is_setting(&o, KNOB_HOROVOD_FUSION_THRESHOLD, "2097152");
    is_setting(&o, KNOB_HVD_REPORT, "1");
    is_setting(&o, KNOB_HVD_NANCHECK, "1");
    assert_int_equal(step_options_add(&o, "--hvd", NULL, &err), 0);
    assert_int_equal(o.n, 3);
    assert_int_equal(step_options_add(&o, "--hvd", "off", &err), 0);
    assert_false(o.is_on);
    assert_int_equal(o.n, 0);
    assert_int_equal(step_options_add(&o, "--hvd", "report", &err), 0);
    assert_true(o.is_on);
    assert_int_equal(o.n, 1);
}

UNIT_TEST(help_is_asked_for)
{
    struct step_options o = added("help");
    assert_true(o.wants_help);
    assert_false(added("report").wants_help);
}

UNIT_TEST(what_is_rendered_reads_back_equal)
{
    struct step_options o = added("timeout=90,iface=ib0,timeline=\"a,b\",fusion=3,"
                                  "framework=tf-ps,ps=2,elastic=no,verbose");
    CLEANUP(strbuf_release) struct strbuf text;
    strbuf_init(&text, 4096);
    step_options_render(&o, &text);
    struct step_options back = added(strbuf_str(&text));
    assert_int_equal(back.n, o.n);
    for (uint32_t i = 0; i < o.n; i++)
        is_setting(&back, o.v[i].setting, o.text + o.v[i].at);
    assert_int_equal(step_options_start_ms(&back), 90000);
}

UNIT_TEST(too_long_and_too_many_are_refused)
{
    static char text[6000];
    static const char item[] = "HOROVOD_TIMELINE=";
    struct step_options o = {0};
    struct err err = ERR_INIT;
    memset(text, 'a', sizeof(text) - 1);
    assert_int_equal(step_options_add(&o, "SLURM_HVD", text, &err), -EINVAL);
    assert_non_null(strstr(err.text, "SLURM_HVD: the value is longer than 4095 bytes"));
    memcpy(text, item, strlen(item));
    text[3000] = '\0';
    assert_int_equal(step_options_add(&o, "--hvd", text, &err), 0);
    assert_int_equal(step_options_add(&o, "--hvd", text, &err), -E2BIG);
    assert_int_equal(o.n, 1);
    o = (struct step_options){0};
    for (uint32_t i = 0; i < STEP_MAX_SETTINGS; i++)
        assert_int_equal(step_options_set(&o, i, "1", &err), 0);
    assert_int_equal(step_options_set(&o, STEP_MAX_SETTINGS, "1", &err), -E2BIG);
    assert_int_equal(step_options_set(&o, 0, "2", &err), 0);
}

UNIT_TEST(help_lists_every_key_with_its_value)
{
    CLEANUP(strbuf_release) struct strbuf text;
    strbuf_init(&text, 65536);
    step_keys_help(&text);
    assert_int_equal(strbuf_status(&text), 0);
#define ROW(name, ...) assert_non_null(strstr(strbuf_str(&text), "\n  " #name));
    STEP_KEYS(ROW)
#undef ROW
    assert_non_null(strstr(strbuf_str(&text), "\n  fusion=MIB              size of"));
    assert_non_null(strstr(strbuf_str(&text), "\n  nancheck                a NaN or"));
    for (const char *p = strbuf_str(&text); *p; p += strcspn(p, "\n") + 1)
        assert_true(strcspn(p, "\n") <= 80);
}

UNIT_TEST(the_manual_lists_the_table)
{
    assert_generated("spank_plugin/spank_hvd.8", ".\\\" keys:", ".\\\" end of keys",
                     step_keys_man);
}

UNIT_MAIN(NULL, NULL)
