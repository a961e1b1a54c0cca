/* SPDX-License-Identifier: Apache-2.0 */
/* The table of variables: every kind's form, every row's default, what is said, typing
 * errors; and that README and man page are what the table says. GOLDEN_UPDATE=1 writes
 * both. */
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/core/knobs.h"
#include "tests/unit/fake_env.h"
#include "tests/unit/generated.h"
#include "tests/unit/unit.h"

/* Only this variable is set; what ret borrows lives until the next call. */
static int
read_one(const char *name, const char *value, struct knob_values *ret, struct err *err)
{
    static struct fake_env env;

    env.n = 0;
    if (name)
        fake_set(&env, name, value);
    return knobs_read(fake_get, &env, ret, err);
}

static enum knob_id id_of(const char *name)
{
    for (int i = 0; i < KNOB_COUNT; i++)
        if (strcmp(knob_row((enum knob_id)i)->name, name) == 0)
            return (enum knob_id)i;
    fail_msg("no row %s", name);
    return KNOB_COUNT;
}

UNIT_TEST(each_kind_has_one_form)
{
    static const struct {
        const char *name, *value;
        int rc;
        uint64_t want;
    } t[] = {
        {"HVD_NANCHECK", "1", 0, 1},
        {"HVD_NANCHECK", "YES", 0, 1},
        {"HVD_NANCHECK", "off", 0, 0},
        {"HVD_NANCHECK", "2", -EINVAL, 0},
        {"HVD_NANCHECK", "ja", -EINVAL, 0},
        {"HOROVOD_CACHE_CAPACITY", "0", 0, 0},
        {"HOROVOD_CACHE_CAPACITY", "65536", 0, 65536},
        {"HOROVOD_CACHE_CAPACITY", "65537", -ERANGE, 0},
        {"HOROVOD_CACHE_CAPACITY", "(None,)", -EINVAL, 0},
        {"HOROVOD_FUSION_THRESHOLD", "67108864", 0, 67108864},
        {"HOROVOD_FUSION_THRESHOLD", "64M", 0, 67108864},
        {"HOROVOD_FUSION_THRESHOLD", "1G", 0, 1u << 30},
        {"HOROVOD_FUSION_THRESHOLD", "20000000K", 0, 20480000000},
        {"HOROVOD_FUSION_THRESHOLD", "1024G", 0, 1ull << 40},
        {"HOROVOD_FUSION_THRESHOLD", "1025G", -ERANGE, 0},
        {"HOROVOD_FUSION_THRESHOLD", "18446744073709551615G", -ERANGE, 0},
        {"HOROVOD_FUSION_THRESHOLD", "18446744073709551616", -EINVAL, 0},
        {"HOROVOD_FUSION_THRESHOLD", "64MB", -EINVAL, 0},
        {"HOROVOD_FUSION_THRESHOLD", "M", -EINVAL, 0},
        {"HOROVOD_FUSION_THRESHOLD", "-1", -EINVAL, 0},
        {"HOROVOD_FUSION_THRESHOLD", "1.5G", -EINVAL, 0},
        {"HOROVOD_FUSION_THRESHOLD", "0000000000000000000000000000000001", -EINVAL, 0},
        {"PERSEUS_ALLREDUCE_FUSION", "32", 0, 32u << 20},
        {"PERSEUS_ALLREDUCE_FUSION", "1048577", -ERANGE, 0},
        {"PERSEUS_ALLREDUCE_DTYPE", "0", 0, 0},
        {"PERSEUS_ALLREDUCE_DTYPE", "2", 0, 2},
        {"PERSEUS_ALLREDUCE_DTYPE", "3", -ERANGE, 0},
        {"PERSEUS_ALLREDUCE_DTYPE", "fp16", -EINVAL, 0},
        {"PERSEUS_ALLREDUCE_MODE", "auto", 0, 0},
        {"PERSEUS_ALLREDUCE_MODE", "1", 0, 2},
        {"PERSEUS_ALLREDUCE_MODE", "hybrid", -EINVAL, 0},
        {"PERSEUS_ALLREDUCE_STREAMS", "6", 0, 6},
        {"PERSEUS_ALLREDUCE_STREAMS", "many", -EINVAL, 0},
        {"PERSEUS_ALLREDUCE_DISABLE_STREAM_TUNING", "1", 0, 1},
        {"PERSEUS_ALLREDUCE_DISABLE_STREAM_TUNING", "2", -EINVAL, 0},
        {"PERSEUS_WITH_K8S", "1", 0, 1},
        {"PERSEUS_WITH_K8S", "k8s", -EINVAL, 0},
        {"HVD_PEER_TIMEOUT", "2", 0, 2000000000},
        {"HVD_PEER_TIMEOUT", "1.5", 0, 1500000000},
        {"HVD_PEER_TIMEOUT", "5m", 0, 300000000000},
        {"HVD_PEER_TIMEOUT", "499ms", -ERANGE, 0},
        {"HVD_PEER_TIMEOUT", "soon", -EINVAL, 0},
        {"HOROVOD_CYCLE_TIME", "1", 0, 1000000},
        {"HOROVOD_CYCLE_TIME", "0.1", 0, 100000},
        {"HOROVOD_CYCLE_TIME", "2.5", 0, 2500000},
        {"HOROVOD_CYCLE_TIME", "3.", 0, 3000000},
        {"HOROVOD_CYCLE_TIME", "0", 0, 0},
        {"HOROVOD_CYCLE_TIME", "5ms", -EINVAL, 0},
        {"HOROVOD_CYCLE_TIME", "(None,)", -EINVAL, 0},
        {"HOROVOD_CYCLE_TIME", "10001", -EINVAL, 0},
        {"HOROVOD_CYCLE_TIME", ".", -EINVAL, 0},
        {"HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "0.25", 0, 0},
        {"HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "1.25", -ERANGE, 0},
        {"HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "0.5h", -EINVAL, 0},
        {"HOROVOD_THREAD_AFFINITY", "3", 0, 1},
        {"HOROVOD_THREAD_AFFINITY", "0,4,8,12", 0, 4},
        {"HOROVOD_THREAD_AFFINITY", "0,,8", -EINVAL, 0},
        {"HOROVOD_THREAD_AFFINITY", "0,", -EINVAL, 0},
        {"HOROVOD_THREAD_AFFINITY", ",0", -EINVAL, 0},
        {"HOROVOD_THREAD_AFFINITY", "0-3", -EINVAL, 0},
        {"HOROVOD_THREAD_AFFINITY", "0,65536", -ERANGE, 0},
        {"HOROVOD_CPU_OPERATIONS", "mpi", 0, 0},
        {"HOROVOD_CPU_OPERATIONS", "GLOO", 0, 1},
        {"HOROVOD_CPU_OPERATIONS", "ccl", 0, 2},
        {"HOROVOD_CPU_OPERATIONS", "cc", -EINVAL, 0},
        {"HOROVOD_CPU_OPERATIONS", "mpi gloo", -EINVAL, 0},
        {"HVD_TRANSPORT", "tcp", 0, 1},
        {"HOROVOD_TIMELINE", "/tmp/a b.json", 0, 0},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct err e = ERR_INIT;
        struct knob_values v;
        enum knob_id id = id_of(t[i].name);
        int rc;

        memset(&v, 0x77, sizeof(v));
        rc = read_one(t[i].name, t[i].value, &v, &e);
        if (rc != t[i].rc)
            print_error("%s=%s: %d %s\n", t[i].name, t[i].value, rc, e.text);
        assert_int_equal(rc, t[i].rc);
        if (rc < 0) {
            assert_non_null(strstr(e.text, t[i].name));
            assert_int_equal(v.v[id], 0x7777777777777777);
            continue;
        }
        assert_int_equal(v.v[id], t[i].want);
        assert_string_equal(v.s[id], t[i].value);
        assert_true(v.is_set[id]);
    }
}

UNIT_TEST(a_refusal_names_value_and_what_is_allowed)
{
    static const struct {
        const char *name, *value, *text;
    } t[] = {
        {"HOROVOD_FUSION_THRESHOLD", "lots",
         "HOROVOD_FUSION_THRESHOLD: \"lots\" is not a number of bytes from 0 to "
         "1099511627776, such as 67108864 or 64M"},
        {"HOROVOD_CYCLE_TIME", "(None,)",
         "HOROVOD_CYCLE_TIME: \"(None,)\" is not a number of milliseconds from 0 to "
         "10000, such as 1 or 0.5"},
        {"HOROVOD_CPU_OPERATIONS", "nccl",
         "HOROVOD_CPU_OPERATIONS: \"nccl\" is not one of: mpi gloo ccl"},
        {"HOROVOD_THREAD_AFFINITY", "all",
         "HOROVOD_THREAD_AFFINITY: \"all\" is not a comma list of numbers from 0 to "
         "65535, such as 0,4,8"},
        {"HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "x",
         "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE: \"x\" is not a decimal number from "
         "0 "
         "to 1"},
        {"PERSEUS_ALLREDUCE_FUSION", "64M",
         "PERSEUS_ALLREDUCE_FUSION: \"64M\" is not a number of MiB from 0 to 1048576"},
        {"PERSEUS_ALLREDUCE_DTYPE", "3",
         "PERSEUS_ALLREDUCE_DTYPE: \"3\" is not a number from 0 to 2"},
        {"PERSEUS_ALLREDUCE_MODE", "hybrid",
         "PERSEUS_ALLREDUCE_MODE: \"hybrid\" is not one of: auto 0 1 2 3"},
        {"HVD_NANCHECK", "ja",
         "HVD_NANCHECK: \"ja\" must be one of: 1, true, yes, on, 0, false, no, off"},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct err e = ERR_INIT;
        struct knob_values v;

        assert_true(read_one(t[i].name, t[i].value, &v, &e) < 0);
        assert_string_equal(e.text, t[i].text);
    }
}

/* A fallback that its own parser refuses, or a row whose columns do not fit. */
UNIT_TEST(each_row_is_sound)
{
    struct err e = ERR_INIT;
    struct knob_values v;

    if (read_one(NULL, NULL, &v, &e) < 0)
        fail_msg("%s", e.text);
    for (int i = 0; i < KNOB_COUNT; i++) {
        const struct knob *k = knob_row((enum knob_id)i);

        assert_false(v.is_set[i]);
        assert_string_equal(v.s[i], k->fallback);
        assert_true(k->meaning[0] != 0);
        assert_int_equal(k->kind == KNOB_CHOICE, k->choices[0] != 0);
        assert_int_equal(k->status == KNOB_HONOURED, k->why[0] == 0);
        assert_null(strchr(k->meaning, '|')); /* a table's cell */
        for (int j = 0; j < i; j++)
            assert_string_not_equal(k->name, knob_row((enum knob_id)j)->name);
        if (k->kind != KNOB_TEXT) { /* garbage is refused by every row */
            struct knob_values w;
            int rc = read_one(k->name, "?", &w, &e);

            if (rc != -EINVAL)
                print_error("%s\n", k->name);
            assert_int_equal(rc, -EINVAL);
            assert_int_equal(strncmp(e.text, k->name, strlen(k->name)), 0);
        }
    }
    assert_int_equal(v.v[KNOB_HOROVOD_FUSION_THRESHOLD], 128u << 20);
    assert_int_equal(v.v[KNOB_HOROVOD_CYCLE_TIME], 0);
    assert_int_equal(v.v[KNOB_HOROVOD_CACHE_CAPACITY], 1024);
}

UNIT_TEST(an_empty_value_is_an_absent_one)
{
    struct err e = ERR_INIT;
    struct knob_values v;

    assert_int_equal(read_one("HOROVOD_CACHE_CAPACITY", "", &v, &e), 0);
    assert_int_equal(v.v[KNOB_HOROVOD_CACHE_CAPACITY], 1024);
    assert_false(v.is_set[KNOB_HOROVOD_CACHE_CAPACITY]);
}

UNIT_TEST(settings_without_effect_are_logged)
{
    static const struct {
        const char *name, *value;
        enum knob_note want;
        const char *text;
    } t[] = {
        {"HOROVOD_FUSION_THRESHOLD", "5", KNOB_SAY_NOTHING, ""},
        {"HOROVOD_CPU_OPERATIONS", "gloo", KNOB_SAY_INFO,
         "HOROVOD_CPU_OPERATIONS=gloo has no effect: the runtime has its own"},
        {"HOROVOD_ENABLE_XLA_OPS", "0", KNOB_SAY_INFO, NULL},
        {"HOROVOD_ENABLE_XLA_OPS", "1", KNOB_SAY_WARN,
         "HOROVOD_ENABLE_XLA_OPS=1 has no effect: operations run outside XLA clusters "
         "in "
         "this version"},
        {"HOROVOD_ELASTIC", "0", KNOB_SAY_NOTHING, ""},
        {"HOROVOD_WITH_MPI", "1", KNOB_SAY_INFO, NULL},
        {"HOROVOD_SECRET_KEY", "c2VjcmV0", KNOB_SAY_INFO,
         "HOROVOD_SECRET_KEY has no effect: the job token comes from HVD_TOKEN_FILE or "
         "HVD_TOKEN_FD"},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        CLEANUP(strbuf_release) struct strbuf text = {0};
        struct err e = ERR_INIT;
        struct knob_values v;

        strbuf_init(&text, 1024);
        assert_int_equal(read_one(t[i].name, t[i].value, &v, &e), 0);
        assert_int_equal(knob_note(&v, id_of(t[i].name), &text), t[i].want);
        if (t[i].text)
            assert_string_equal(strbuf_str(&text), t[i].text);
        assert_int_equal(knob_note(&v, KNOB_HOROVOD_TORUS_ALLREDUCE, &text),
                         KNOB_SAY_NOTHING); /* not set */
    }
}

UNIT_TEST(what_we_cannot_do_is_refused)
{
    struct err e = ERR_INIT;
    struct knob_values v;

    assert_int_equal(read_one("HOROVOD_ELASTIC", "1", &v, &e), -ENOTSUP);
    assert_string_equal(e.text, "HOROVOD_ELASTIC=1: this job keeps its size: start it "
                                "with horovodrun --min-np, which sets the variable");
}

static const char *get_elastic(void *arg, const char *name)
{
    if (strcmp(name, "HVD_ELASTIC") == 0)
        return "hvd-0:1.1";
    return strcmp(name, "HOROVOD_ELASTIC") == 0 ? arg : NULL;
}

UNIT_TEST(a_launcher_of_an_elastic_job_may_say_so)
{
    struct err e = ERR_INIT;
    struct knob_values v;
    char one[] = "1", bad[] = "maybe";

    assert_int_equal(knobs_read(get_elastic, one, &v, &e), 0);
    assert_int_equal(v.v[KNOB_HOROVOD_ELASTIC], 1);
    assert_int_equal(knobs_read(get_elastic, bad, &v, &e), -EINVAL);
}

UNIT_TEST(a_list_has_entries)
{
    uint32_t v = 77;

    assert_true(knob_list_at("3,40,5", 0, &v));
    assert_int_equal(v, 3);
    assert_true(knob_list_at("3,40,5", 1, &v));
    assert_int_equal(v, 40);
    assert_true(knob_list_at("3,40,5", 2, &v));
    assert_int_equal(v, 5);
    assert_false(knob_list_at("3,40,5", 3, &v));
    assert_false(knob_list_at("", 0, &v));
}

UNIT_TEST(typing_errors_are_seen)
{
    static const struct {
        const char *name, *meant;
    } t[] = {
        {"HOROVOD_FUSION_THRESHHOLD", "HOROVOD_FUSION_THRESHOLD"},
        {"HOROVOD_FUSION_THERSHOLD", "HOROVOD_FUSION_THRESHOLD"},
        {"HOROVOD_CYCLETIME", "HOROVOD_CYCLE_TIME"},
        {"HOROVOD_LOGLEVEL", "HOROVOD_LOG_LEVEL"},
        {"HVD_NAN_CHECK", "HVD_NANCHECK"},
        {"PERSEUS_ALLREDUCE_NAN_CHECK", "PERSEUS_ALLREDUCE_NANCHECK"},
        {"HVD_RENDEZVOUS_ADRR", "HVD_RENDEZVOUS_ADDR"},
        {"HOROVOD_FUSION_THRESHOLD", NULL}, /* is one */
        {"HOROVOD_RANK", NULL},
        {"HVD_TF_BLOCKING", NULL},
        {"HOROVOD_MY_OWN_THING", NULL},
        {"HVD_NS", "HVD_NP"},
        {"HVD_XY", NULL}, /* short: two letters are another word */
        {"FUSION_THRESHOLD", NULL},
        {"PATH", NULL},
        {"HOROVOD_", NULL},
        {"HOROVOD_AN_EXTREMELY_LONG_NAME_THAT_NOBODY_EVER_THOUGHT_OF_USING", NULL},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        const char *meant = knob_find_nearest(t[i].name);

        if (t[i].meant) {
            if (!meant)
                print_error("%s\n", t[i].name);
            assert_non_null(meant);
            assert_string_equal(meant, t[i].meant);
        } else {
            if (meant)
                print_error("%s: %s\n", t[i].name, meant);
            assert_null(meant);
        }
    }
}

/* --- documents --- */

UNIT_TEST(documents_are_generated_from_the_table)
{
    assert_generated("runtime/doc/variables.md",
                     "<!-- variables:", "<!-- end of variables -->", knobs_markdown);
    assert_generated("runtime/hvd-environment.7",
                     ".\\\" variables:", ".\\\" end of variables", knobs_man);
}

UNIT_TEST(one_variable_is_found_and_checked_alone)
{
    enum knob_id id = KNOB_COUNT;
    uint64_t v = 7;
    struct err e = ERR_INIT;

    assert_true(knob_find("HOROVOD_FUSION_THRESHOLD", &id));
    assert_int_equal(id, KNOB_HOROVOD_FUSION_THRESHOLD);
    assert_false(knob_find("HOROVOD_FUSION", &id));
    assert_false(knob_find("HOROVOD_RANK", &id));
    assert_int_equal(knob_parse(KNOB_HOROVOD_FUSION_THRESHOLD, "x", &v, &e), -EINVAL);
    assert_non_null(strstr(e.text, "HOROVOD_FUSION_THRESHOLD: \"x\" is not a number"));
    assert_int_equal(knob_parse(KNOB_HOROVOD_ELASTIC, "1", &v, &e), -ENOTSUP);
    assert_int_equal(v, 7);
    assert_int_equal(knob_parse(KNOB_HOROVOD_ELASTIC, "0", &v, &e), 0);
    assert_int_equal(v, 0);
    assert_int_equal(knob_parse(KNOB_HOROVOD_FUSION_THRESHOLD, "2K", &v, &e), 0);
    assert_int_equal(v, 2048);
}

UNIT_MAIN(NULL, NULL)
