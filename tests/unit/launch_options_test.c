/* SPDX-License-Identifier: Apache-2.0 */
/* options.c: Horovod's spellings, and an error message for each mistake. */
#include "runtime/core/knobs.h"
#include "runtime/launch/core/options.h"
#include "tests/unit/launch_fixture.h"
#include "tests/unit/torture.h"

#define MAX_WORDS 24

/* Splits at blanks; words live in a static buffer. */
static int line_words(const char *line, char **argv)
{
    static char text[512];
    int n = 0;
    strncpy(text, line, sizeof(text) - 1);
    for (char *w = strtok(text, " "); w && n < MAX_WORDS - 1; w = strtok(NULL, " "))
        argv[n++] = w;
    argv[n] = NULL;
    return n;
}

struct config { /* content of the test's config file */
    const char *key, *value;
};

static int
read_config(void *arg, const char *path, struct launch_options *o, struct err *err)
{
    const struct config *c = arg;
    assert_string_equal(path, "f.yaml");
    for (; c->key; c++) {
        int rc = options_set_key(o, c->key, c->value, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int line_parse(const char *line,
                      const struct config *c,
                      struct launch_options *o,
                      struct err *err)
{
    static char *argv[MAX_WORDS];
    union { /* the callback's argument is not const */
        const struct config *in;
        void *out;
    } arg = {.in = c};
    return options_parse(line_words(line, argv), argv, read_config, arg.out, o, err);
}

static const char *options_var(const struct launch_options *o, const char *name)
{
    for (size_t i = 0; i < o->n_vars; i++)
        if (!strcmp(o->vars[i].name, name))
            return o->vars[i].value;
    return NULL;
}

UNIT_TEST(options_take_all_spellings)
{
    struct err err = ERR_INIT;
    struct launch_options o;
    static const char *const same[] = {
        "horovodrun -np 4 -H localhost:4 python -np 7",
        "horovodrun --num-proc 4 --hosts localhost:4 python -np 7",
        "horovodrun -np=4 --hosts=localhost:4 -- python -np 7",
        "horovodrun --gloo --num-proc=4 -Hlocalhost:4 -- python -np 7",
        "horovodrun --num-p 4 --hosts localhost:4 python -np 7",
        "perseusrun \xe2\x80\x93-gloo \xe2\x80\x93np 4 \xe2\x80\x93H localhost:4 "
        "\xe2\x80\x93\xe2\x80\x93 python -np 7",
        "perseusrun \xe2\x80\x94num-proc=4 \xe2\x88\x92H localhost:4 \xe2\x80\x94 "
        "python -np 7",
    };
    for (size_t i = 0; i < ARRAY_LEN(same); i++) {
        assert_int_equal(line_parse(same[i], NULL, &o, &err), 0);
        assert_int_equal(options_u32(&o, OPT_NP, 0), 4);
        assert_string_equal(o.text[OPT_HOSTS], "localhost:4");
        assert_string_equal(o.command[0], "python");
        assert_string_equal(o.command[1],
                            "-np"); /* after the command nothing is ours */
        assert_null(o.command[3]);
        assert_int_equal(o.n_warnings > 0, same[i][0] == 'p');
        options_release(&o);
    }
}

UNIT_TEST(options_have_defaults_and_values)
{
    struct err err = ERR_INIT;
    CLEANUP(options_release) struct launch_options o;
    assert_int_equal(line_parse("x -np 2 a", NULL, &o, &err), 0);
    assert_null(o.text[OPT_HOSTS]);
    assert_false(options_is_on(&o, OPT_VERBOSE));
    assert_int_equal(options_ms(&o, OPT_START_TIMEOUT, 7), 7);
    /* variables without an option are left to the ranks */
    assert_int_equal(o.n_vars, 0);
    options_release(&o);
    assert_int_equal(
        line_parse(
            "x --start-timeout 1.5 --verbose -prefix-timestamp --output-filename d "
            "-hostfile f --log-level debug -v -h",
            NULL, &o, &err),
        0);
    assert_int_equal(options_ms(&o, OPT_START_TIMEOUT, 0), 1500);
    assert_true(options_is_on(&o, OPT_VERBOSE) && o.text[OPT_PREFIX_TIMESTAMP]
                && o.text[OPT_VERSION] && o.text[OPT_HELP]);
    assert_string_equal(o.text[OPT_OUTPUT_FILENAME], "d");
    assert_string_equal(o.text[OPT_HOSTFILE], "f");
    assert_string_equal(o.text[OPT_LOG_LEVEL], "DEBUG");
    assert_null(o.command[0]);
    options_release(&o);
    assert_int_equal(
        line_parse("x -p 22 -i key --prefix-output-with-timestamp a", NULL, &o, &err),
        0);
    assert_int_equal(options_u32(&o, OPT_SSH_PORT, 0), 22);
    assert_string_equal(o.text[OPT_SSH_IDENTITY_FILE], "key");
    assert_true(options_is_on(&o, OPT_PREFIX_TIMESTAMP));
    options_release(&o);
    assert_int_equal(
        line_parse("x --ssh-port=22 --ssh-identity-file=key a", NULL, &o, &err), 0);
    assert_int_equal(options_u32(&o, OPT_SSH_PORT, 0), 22);
    assert_string_equal(o.text[OPT_SSH_IDENTITY_FILE], "key");
}

UNIT_TEST(each_mistake_has_its_message)
{
    struct launch_options o;
    static const struct {
        const char *line, *part;
    } table[] = {
        {"x --nump-roc 2 a", "unknown option --nump-roc; the nearest is --num-proc"},
        {"x --host a:1 a", "option --host is ambiguous: --hosts, --hostfile, "
                           "--host-discovery-script"},
        {"x -n 2 a", "the nearest is -np"},
        {"x --outputfilename d a", "the nearest is --output-filename"},
        {"x --verbsoe a", "the nearest is --verbose"},
        {"x \xe2\x80\x93npp 4 a", "unknown option -npp; the nearest is -np"},
        {"x -np {NP} -H {HOSTS} a",
         "-np={NP} is a placeholder; replace the braces with N"},
        {"x -np 2 -H {HOST1}:1,{HOST2}:1 a",
         "-H={HOST1}:1,{HOST2}:1 is a placeholder; replace the braces with HOST:SLOTS"},
        {"x --hosts={hosts} a", "--hosts={hosts} is a placeholder"},
        {"x --output-filename {log_dir} a", "replace the braces with DIR"},
        {"x -np 2 {COMMAND}", "{COMMAND} is a placeholder; replace the braces with a "
                              "command or an option"},
        {"x -np 2 -- {COMMAND}", "{COMMAND} is a placeholder"},
        {"x -np", "-np needs a value: N"},
        {"x -np --verbose a", "-np needs a value: N"},
        {"x -np 0 a", "-np=0 must be >= 1"},
        {"x --num-proc two a", "--num-proc=two is not a whole number"},
        {"x -np 9999999 a", "-np=9999999 must be <= 1048576"},
        {"x -p22x a", "-p=22x is not a whole number"},
        {"x -prefix-timestamps a", "the nearest is -prefix-timestamp"},
        {"x -identity k a", "unknown option -identity"},
        {"x --verbose=1 a", "--verbose takes no value"},
        {"x --start-timeout soon a", "--start-timeout=soon is not a duration"},
        {"x --start-timeout 0 a", "--start-timeout=0 must be >= 0.001"},
        {"x --fusion-threshold-mb -1 a", "--fusion-threshold-mb=-1 must be >= 0"},
        {"x --fusion-threshold-mb=1.5 a",
         "--fusion-threshold-mb=1.5 is not a whole number"},
        {"x --cycle-time-ms=-0.5 a", "--cycle-time-ms=-0.5 must be >= 0"},
        {"x --cycle-time-ms nan a", "--cycle-time-ms=nan is not a number"},
        {"x --cycle-time-ms 0x1 a", "--cycle-time-ms=0x1 is not a number"},
        {"x --cache-capacity -1 a", "--cache-capacity=-1 must be >= 0"},
        {"x --autotune-gaussian-process-noise 1.5 a",
         "--autotune-gaussian-process-noise=1.5 must be <= 1"},
        {"x --stall-check-warning-time-seconds -1 a",
         "--stall-check-warning-time-seconds=-1 must be >= 0"},
        {"x --thread-affinity 1,,2 a", "--thread-affinity= is not a whole number"},
        {"x --thread-affinity 1,-2 a", "--thread-affinity=-2 must be >= 0"},
        {"x --network-interfaces eth0, a", "has an empty name"},
        {"x --log-level loud a",
         "--log-level=loud must be one of: TRACE|DEBUG|INFO|WARNING|ERROR|FATAL"},
        {"x --hosts= a", "--hosts is empty"},
        {"x --autotune --no-autotune a",
         "--autotune and --no-autotune contradict each other"},
        {"x --log-hide-timestamp --log-with-timestamp a", "contradict each other"},
        {"x -H a:1 -hostfile f a", "-H and -hostfile exclude each other"},
        {"x --hostfile f --host-discovery-script s a",
         "-hostfile and --host-discovery-script exclude each other"},
        {"x --mpi --gloo a", "--gloo and --mpi exclude each other"},
        {"x --jsrun a", "--jsrun: LSF's jsrun is not supported"},
        {"x -np 2 --min-np 3 a", "--min-np 3 exceeds -np 2"},
        {"x -np 2 --max-np 1 a", "--max-np 1 is below -np 2"},
        {"x --min-np 3 --max-np 2 a", "--max-np 2 is below --min-np 3"},
        {"x -np 2 --min-np 1 --max-np 1 a", "--max-np 1 is below -np 2"},
        {"x --max-np 2 a", "--max-np 2: the job has no size at the start; add -np N or "
                           "--min-np N"},
        {"x -np 4 --framework tf-ps --min-np 3 a",
         "--framework tf-ps needs a job of fixed size; remove --min-np"},
        {"x -np 4 --framework tf-multiworker --max-np 5 a",
         "--framework tf-multiworker needs a job of fixed size; remove --max-np"},
        {"x --blacklist-cooldown-range 2 1 a",
         "--blacklist-cooldown-range: 2 exceeds 1"},
        {"x --blacklist-cooldown-range 2",
         "--blacklist-cooldown-range needs two values: MIN MAX"},
        {"x --blacklist-cooldown-range -1 2 a",
         "--blacklist-cooldown-range=-1 must be >= 0"},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct err err = ERR_INIT;
        assert_int_equal(line_parse(table[i].line, NULL, &o, &err), -EINVAL);
        if (!strstr(err.text, table[i].part))
            fail_msg("%s: %s", table[i].line, err.text);
        options_release(&o);
    }
}

UNIT_TEST(braces_that_are_no_placeholder_are_left_alone)
{
    static const char *const good[] = {
        "x -np 2 python {x}", "x -np 2 {",
        "x -np 2 {}",         "x -np 2 --output-filename log{1} a",
        "x -np 2 ./{a}",
    };
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        struct err err = ERR_INIT;
        struct launch_options o;
        if (line_parse(good[i], NULL, &o, &err) < 0)
            fail_msg("%s: %s", good[i], err.text);
        options_release(&o);
    }
}

UNIT_TEST(flags_become_the_ranks_variables)
{
    struct err err = ERR_INIT;
    struct launch_options o;
    static const struct {
        const char *line, *name, *value;
    } table[] = {
        {"x --fusion-threshold-mb 32 a", "HOROVOD_FUSION_THRESHOLD", "33554432"},
        {"x --fusion-threshold-mb 1048576 a", "HOROVOD_FUSION_THRESHOLD",
         "1099511627776"},
        {"x --cycle-time-ms 0.5 a", "HOROVOD_CYCLE_TIME", "0.5"},
        {"x --cache-capacity 0 a", "HOROVOD_CACHE_CAPACITY", "0"},
        {"x --hierarchical-allreduce a", "HOROVOD_HIERARCHICAL_ALLREDUCE", "1"},
        {"x --no-hierarchical-allgather a", "HOROVOD_HIERARCHICAL_ALLGATHER", "0"},
        {"x --no-hierarchical-allreduce a", "HOROVOD_HIERARCHICAL_ALLREDUCE", "0"},
        {"x --hierarchical-allgather a", "HOROVOD_HIERARCHICAL_ALLGATHER", "1"},
        {"x --torus-allreduce a", "HOROVOD_TORUS_ALLREDUCE", "1"},
        {"x --no-torus-allreduce a", "HOROVOD_TORUS_ALLREDUCE", "0"},
        {"x --no-mpi-threads-disable a", "HOROVOD_MPI_THREADS_DISABLE", "0"},
        {"x --autotune a", "HOROVOD_AUTOTUNE", "1"},
        {"x --no-autotune a", "HOROVOD_AUTOTUNE", "0"},
        {"x --autotune --autotune-log-file f a", "HOROVOD_AUTOTUNE_LOG", "f"},
        {"x --autotune-log-file f a", "HOROVOD_AUTOTUNE_LOG", NULL},
        {"x --autotune --autotune-warmup-samples 5 a",
         "HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "5"},
        {"x --autotune --autotune-steps-per-sample 6 a",
         "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "6"},
        {"x --autotune --autotune-bayes-opt-max-samples 7 a",
         "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "7"},
        {"x --autotune --autotune-gaussian-process-noise 0.1 a",
         "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "0.1"},
        {"x --timeline-filename t a", "HOROVOD_TIMELINE", "t"},
        {"x --timeline-filename t --timeline-mark-cycles a",
         "HOROVOD_TIMELINE_MARK_CYCLES", "1"},
        {"x --timeline-mark-cycles a", "HOROVOD_TIMELINE_MARK_CYCLES", NULL},
        {"x --no-stall-check a", "HOROVOD_STALL_CHECK_DISABLE", "1"},
        {"x --stall-check a", "HOROVOD_STALL_CHECK_DISABLE", "0"},
        {"x --stall-check-warning-time-seconds 9 a", "HOROVOD_STALL_CHECK_TIME_SECONDS",
         "9"},
        {"x --stall-check-shutdown-time-seconds 2m a",
         "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "120"},
        {"x --mpi-threads-disable a", "HOROVOD_MPI_THREADS_DISABLE", "1"},
        {"x --tcp a", "NCCL_IB_DISABLE", "1"},
        {"x --report a", "HVD_REPORT", "1"},
        {"x --num-nccl-streams 2 a", "HOROVOD_NUM_NCCL_STREAMS", "2"},
        {"x --thread-affinity 1,3 a", "HOROVOD_THREAD_AFFINITY", "1,3"},
        {"x --gloo-timeout-seconds 1.5 a", "HOROVOD_GLOO_TIMEOUT_SECONDS", "1.500"},
        {"x --log-level info a", "HOROVOD_LOG_LEVEL", "INFO"},
        {"x --log-without-timestamp a", "HOROVOD_LOG_HIDE_TIME", "1"},
        {"x --log-with-timestamp a", "HOROVOD_LOG_HIDE_TIME", "0"},
        {"x --log-hide-timestamp a", "HOROVOD_LOG_HIDE_TIME", "1"},
        {"x --no-log-hide-timestamp a", "HOROVOD_LOG_HIDE_TIME", "0"},
        {"x --start-timeout 5m a", "HOROVOD_START_TIMEOUT", "300"},
        {"x --network-interface b --network-interfaces a,b,c a", "NCCL_SOCKET_IFNAME",
         "b,a,c"},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        assert_int_equal(line_parse(table[i].line, NULL, &o, &err), 0);
        const char *got = options_var(&o, table[i].name);
        if (!got != !table[i].value || (got && strcmp(got, table[i].value) != 0))
            fail_msg("%s: %s=%s", table[i].line, table[i].name, got ? got : "(none)");
        options_release(&o);
    }
}

/* Each end of a flag's range must be one that the ranks take. */
static const char *one_var(void *arg, const char *name)
{
    const struct option_var *v = arg;
    return strcmp(name, v->name) == 0 ? v->value : NULL;
}

UNIT_TEST(every_variable_of_a_flag_is_a_knob)
{
    for (size_t i = 0; i < OPT_COUNT; i++) {
        const struct launch_option_row *row = option_row((enum option_id)i);
        char text[64];
        if (!*row->var || !strncmp(row->var, "NCCL_", 5))
            continue;
        struct option_var v = {row->var + (*row->var == '!'), text};
        size_t k = 0;
        while (k < KNOB_COUNT && strcmp(knob_row((enum knob_id)k)->name, v.name) != 0)
            k++;
        if (k == KNOB_COUNT)
            fail_msg("%s sets %s, which is no knob", row->name, v.name);
        bool is_idle = knob_row((enum knob_id)k)->status == KNOB_NO_EFFECT;
        if (is_idle != (strstr(row->help, "without effect") != NULL))
            fail_msg("%s: help and knob differ on whether it has an effect", row->name);
        for (int end = 0; end < 2; end++) {
            struct err err = ERR_INIT;
            struct knob_values values;
            double n = end ? row->max : row->min;
            if (row->kind == OPTION_CHOICE)
                (void)snprintf(text, sizeof(text), "%s", end ? "FATAL" : "TRACE");
            else
                (void)snprintf(text, sizeof(text), "%.10g",
                               row->kind == OPTION_MIB ? n * (1 << 20) : n);
            if (row->kind == OPTION_MIB && end)
                (void)snprintf(text, sizeof(text), "%llu", 1ull << 40);
            if (knobs_read(one_var, &v, &values, &err) < 0
                && knob_row((enum knob_id)k)->status != KNOB_REFUSED)
                fail_msg("%s: the ranks refuse %s=%s: %s", row->name, v.name, text,
                         err.text);
        }
    }
}

UNIT_TEST(flags_without_effect_are_warned_about)
{
    struct err err = ERR_INIT;
    CLEANUP(options_release) struct launch_options o;
    assert_int_equal(
        line_parse("x --timeline-mark-cycles --slots-per-host 2 a", NULL, &o, &err), 0);
    assert_int_equal(o.n_warnings, 2);
    assert_string_equal(o.warnings[0], "--slots-per-host has no effect without "
                                       "--host-discovery-script");
    assert_string_equal(o.warnings[1], "--timeline-mark-cycles has no effect without "
                                       "--timeline-filename");
}

UNIT_TEST(a_job_of_fixed_size_has_no_elastic_options)
{
    static const struct {
        const char *line, *warning;
    } rows[] = {
        {"x -np 2 --max-num-proc 2 a", "--max-np 2 equals -np: the job has a fixed "
                                       "size, and a rank that fails ends it"},
        {"x -np 2 --reset-limit 3 a",
         "--reset-limit has no effect on a job of fixed size; see --min-np"},
        {"x -np 2 --spares 3 a",
         "--spares has no effect on a job of fixed size; see --min-np"},
        {"x -np 2 --elastic-timeout 3 a",
         "--elastic-timeout has no effect on a job of fixed size; see --min-np"},
        {"x --host-discovery-script s --blacklist-cooldown-range 1 2 a",
         "--blacklist-cooldown-range has no effect on a job of fixed size; see "
         "--min-np"},
        {"x -np 2 a", NULL},
        {"x --host-discovery-script s a", NULL}, /* it is run once */
        {"x -np 2 --framework tf-multiworker --host-discovery-script s a", NULL},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err err = ERR_INIT;
        CLEANUP(options_release) struct launch_options o;

        assert_int_equal(line_parse(rows[i].line, NULL, &o, &err), 0);
        assert_false(options_are_elastic(&o));
        assert_int_equal(o.n_warnings, rows[i].warning != NULL);
        if (rows[i].warning)
            assert_string_equal(o.warnings[0], rows[i].warning);
    }
}

/* "START MIN MAX + SPARES, reset N, wait MS, exclude S to S" */
UNIT_TEST(an_elastic_job_has_bounds_and_defaults)
{
    static const struct {
        const char *line, *want;
    } rows[] = {
        {"x -np 4 --min-np 2 a", "4 2 0 + 0, reset -1, wait 600000, exclude 30 to 600"},
        {"x --min-num-proc 2 a", "2 2 0 + 0, reset -1, wait 600000, exclude 30 to 600"},
        {"x -np 2 --min-np 2 --max-np 2 a",
         "2 2 2 + 0, reset -1, wait 600000, exclude 30 to 600"},
        {"x -np 2 --max-num-proc 3 a",
         "2 2 3 + 0, reset -1, wait 600000, exclude 30 to 600"},
        {"x -np 2 --max-np 4 --spares 2 a",
         "2 2 4 + 2, reset -1, wait 600000, exclude 30 to 600"},
        {"x -np 2 --host-discovery-script s a",
         "2 2 0 + 0, reset -1, wait 600000, exclude 30 to 600"},
        {"x -np 2 --max-np 2 --host-discovery-script s a",
         "2 2 2 + 0, reset -1, wait 600000, exclude 30 to 600"},
        {"x -np 2 --max-np 2 --min-np 1 --elastic-timeout 1.5 --reset-limit 0 "
         "--blacklist-cooldown-range 5 604800 a",
         "2 1 2 + 0, reset 0, wait 1500, exclude 5 to 604800"},
        {"x -np 2 --min-np 1 --elastic-timeout 0 --blacklist-cooldown-range 0 0 a",
         "2 1 0 + 0, reset -1, wait 0, exclude 0 to 0"},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err err = ERR_INIT;
        CLEANUP(options_release) struct launch_options o;
        struct elastic_options e;
        char got[200];

        assert_int_equal(line_parse(rows[i].line, NULL, &o, &err), 0);
        assert_int_equal(o.n_warnings, 0);
        assert_true(options_are_elastic(&o));
        assert_int_equal(options_elastic(&o, &e, &err), 0);
        (void)snprintf(got, sizeof(got),
                       "%u %u %u + %u, reset %d, wait %llu, exclude %g to %g", e.start,
                       e.min, e.max, e.spares, (int)e.reset_limit,
                       (unsigned long long)e.timeout_ms, (double)e.exclude_ns / 1e9,
                       (double)e.exclude_max_ns / 1e9);
        assert_string_equal(got, rows[i].want);
    }
}

static int options_once(void *arg)
{
    static const struct config c[] = {{"params.cycle_time_ms", "10"}, {NULL, NULL}};
    struct err err = ERR_INIT;
    CLEANUP(options_release) struct launch_options o;
    return line_parse(arg, c, &o, &err);
}

UNIT_TEST(memory_that_runs_out_is_an_error)
{
    char line[] = "x \xe2\x80\x93np 4 --max-np 4 --reset-limit 1 --config-file f.yaml "
                  "--log-level debug "
                  "--fusion-threshold-mb 3 --network-interface a a";
    torture(options_once, line);
}

UNIT_TEST(help_names_the_program_and_every_option)
{
    CLEANUP(strbuf_release) struct strbuf out;
    strbuf_init(&out, 65536);
    options_help("perseusrun", &out);
    assert_non_null(strstr(strbuf_str(&out), "usage: perseusrun"));
    assert_non_null(strstr(strbuf_str(&out), "128 + signal"));
    for (size_t i = 0; i < OPT_COUNT; i++) {
        const struct launch_option_row *row = option_row((enum option_id)i);
        const char *const names[] = {row->name, row->alias, row->off, row->off_alias,
                                     row->help};
        for (size_t k = 0; k < ARRAY_LEN(names); k++)
            if (!strstr(strbuf_str(&out), names[k]))
                fail_msg("%s is not in the help", names[k]);
    }
    assert_int_equal(strbuf_status(&out), 0);
}

UNIT_MAIN(NULL, NULL)
