/* SPDX-License-Identifier: Apache-2.0 */
/* Variables as settings: the rules between two of them, and what rank 0 says once. */
#include <pthread.h>
#include <sched.h>

#include "tests/unit/unit.h"

#include "runtime/world/settings.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "tests/unit/fake_env.h"

static struct fake_env env;

static struct settings read_all(const char *text)
{
    struct settings s;
    struct err e = ERR_INIT;

    env.n = 0;
    fake_set_all(&env, text);
    if (settings_read(fake_get, &env, &s, &e) < 0)
        fail_msg("%s: %s", text, e.text);
    return s;
}

UNIT_TEST(defaults_are_the_table_s)
{
    struct settings s = read_all("");

    assert_int_equal(s.start_timeout_ns, 600 * NS_PER_S);
    assert_int_equal(s.peer_timeout_ns, 30 * NS_PER_S);
    assert_int_equal(s.fusion_bytes, 128u << 20);
    assert_int_equal(s.cache_capacity, 1024);
    assert_int_equal(s.stall_warn_ns, 60 * NS_PER_S);
    assert_int_equal(s.stall_fail_ns, 0);
    assert_int_equal(s.log_level, LOG_WARN);
    assert_true(s.has_log_time);
    assert_int_equal(s.core, -1);
    assert_false(s.reports || s.is_dry_run);
    assert_false(s.is_group_alone || s.nancheck || s.timeline_all
                 || s.timeline_mark_cycles || s.timeline[0] || s.stats_dir[0]);
    assert_false(s.is_autotuned || s.is_fusion_set || s.is_gather_set || s.gather_ns > 0
                 || s.autotune_log[0] || s.autotune_file[0]);
}

UNIT_TEST(values_arrive)
{
    struct settings s = read_all(
        "HOROVOD_START_TIMEOUT=5 HVD_PEER_TIMEOUT=2 HOROVOD_FUSION_THRESHOLD=1M "
        "HOROVOD_CYCLE_TIME=0.25 HOROVOD_CACHE_CAPACITY=0 HOROVOD_LOG_LEVEL=Debug "
        "HOROVOD_DISABLE_GROUP_FUSION=yes HOROVOD_DYNAMIC_PROCESS_SETS=true "
        "HVD_NANCHECK=on HOROVOD_TIMELINE=/tmp/t.json HOROVOD_TIMELINE_MARK_CYCLES=1 "
        "HVD_TIMELINE_ALL=1 HVD_STATS_DIR=/run/s "
        "HOROVOD_STALL_CHECK_TIME_SECONDS=7 HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=9 "
        "HOROVOD_AUTOTUNE=1 HOROVOD_AUTOTUNE_LOG=/tmp/l HVD_AUTOTUNE_FILE=/tmp/f "
        "HOROVOD_AUTOTUNE_WARMUP_SAMPLES=4 HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE=5 "
        "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES=6");

    assert_int_equal(s.start_timeout_ns, 5 * NS_PER_S);
    assert_int_equal(s.peer_timeout_ns, 2 * NS_PER_S);
    assert_int_equal(s.fusion_bytes, 1u << 20);
    assert_int_equal(s.cache_capacity, 0);
    assert_int_equal(s.log_level, LOG_DEBUG);
    assert_true(s.is_group_alone && s.nancheck && s.timeline_all
                && s.timeline_mark_cycles);
    assert_string_equal(s.timeline, "/tmp/t.json");
    assert_string_equal(s.stats_dir, "/run/s");
    assert_int_equal(s.stall_warn_ns, 7 * NS_PER_S);
    assert_int_equal(s.stall_fail_ns, 9 * NS_PER_S);
    assert_int_equal(s.gather_ns, 250000);
    assert_true(s.is_gather_set && s.is_fusion_set && s.is_autotuned);
    assert_string_equal(s.autotune_log, "/tmp/l");
    assert_string_equal(s.autotune_file, "/tmp/f");
    assert_int_equal(s.autotune_warmup, 4);
    assert_int_equal(s.autotune_steps, 5);
    assert_int_equal(s.autotune_samples, 6);
}

/* Rank 0's values, whatever this rank has read. */
UNIT_TEST(a_dry_run_reports_and_does_not_tune)
{
    struct settings s =
        read_all("HOROVOD_AUTOTUNE=1 HVD_REPORT=1 HVD_DRY_RUN=1 HVD_REPLICA_CHECK=5");

    assert_true(s.reports && s.is_dry_run && s.is_autotuned);
    settings_set_report(&s, false, false);
    assert_true(!s.reports && !s.is_dry_run && s.is_autotuned);
    settings_set_report(&s, true, false);
    assert_true(s.reports && !s.is_dry_run && s.is_autotuned
                && s.guard.check_steps == 5);
    settings_set_report(&s, false, true);
    assert_true(s.reports && s.is_dry_run && !s.is_autotuned
                && s.guard.check_steps == 0);
}

UNIT_TEST(guards_have_their_settings)
{
    struct replica_guard g = read_all("").guard;

    assert_true(g.check_steps == 0 && !g.is_warning && g.first == 0 && g.last == 0);
    g = read_all("HVD_REPLICA_CHECK=100 HVD_REPLICA_ACTION=warn HVD_REPLAY=400").guard;
    assert_true(g.check_steps == 100 && g.is_warning && g.first == 400
                && g.last == 400);
    g = read_all("HVD_REPLAY=301-999999999 HVD_REPLICA_ACTION=fail").guard;
    assert_true(!g.is_warning && g.first == 301 && g.last == 999999999);
}

UNIT_TEST(a_wrong_range_of_steps_is_refused)
{
    static const char *const all[] = {"0",     "5-4", "x",    "3-",          "-3",
                                      "1-2-3", "4x",  "3--4", "12345678901", "0-5"};

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        struct settings s;
        struct err e = ERR_INIT;
        char text[64];

        (void)snprintf(text, sizeof(text), "HVD_REPLAY=%s", all[i]);
        env.n = 0;
        fake_set_all(&env, text);
        assert_int_equal(settings_read(fake_get, &env, &s, &e), -EINVAL);
        (void)snprintf(text, sizeof(text), "HVD_REPLAY=\"%s\" is neither a step",
                       all[i]);
        assert_non_null(strstr(e.text, text));
    }
}

UNIT_TEST(another_product_s_name_stands_for_ours)
{
    assert_int_equal(read_all("HOROVOD_GLOO_TIMEOUT_SECONDS=600").peer_timeout_ns,
                     600 * NS_PER_S);
    assert_int_equal(
        read_all("HOROVOD_GLOO_TIMEOUT_SECONDS=600 HVD_PEER_TIMEOUT=3").peer_timeout_ns,
        3 * NS_PER_S);
    assert_int_equal(read_all("PERSEUS_ALLREDUCE_FUSION=32").fusion_bytes, 32u << 20);
    assert_int_equal(
        read_all("PERSEUS_ALLREDUCE_FUSION=32 HOROVOD_FUSION_THRESHOLD=0").fusion_bytes,
        0);
    assert_true(read_all("PERSEUS_ALLREDUCE_NANCHECK=1").nancheck);
    assert_false(read_all("PERSEUS_ALLREDUCE_NANCHECK=1 HVD_NANCHECK=0").nancheck);
}

UNIT_TEST(perseus_dtype_is_a_compression_only_if_it_is_set)
{
    static const struct {
        const char *text, *codec;
    } t[] = {
        {"PERSEUS_ALLREDUCE_FUSION=32", ""},
        {"PERSEUS_ALLREDUCE_DTYPE=0", "fp16"},
        {"PERSEUS_ALLREDUCE_DTYPE=1", ""},
        {"PERSEUS_ALLREDUCE_DTYPE=2", ""},
        {"PERSEUS_ALLREDUCE_DTYPE=0 HVD_COMPRESSION=none", ""},
        {"PERSEUS_ALLREDUCE_DTYPE=0 HVD_COMPRESSION=bf16", "bf16"},
        {"PERSEUS_ALLREDUCE_DTYPE=1 HVD_COMPRESSION=fp16", "fp16"},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++)
        assert_string_equal(read_all(t[i].text).codec, t[i].codec);
}

UNIT_TEST(gpus_have_their_settings)
{
    struct gpu_settings g = read_all("").gpu;

    assert_int_equal(g.direct_bytes, 8u << 20);
    assert_int_equal(g.pool_bytes, 256u << 20);
    assert_int_equal(g.n_streams, 1);
    assert_true(g.batches_copies && !g.nccl_lib[0]);
    assert_false(g.is_off || g.uses_graphs || g.registers || g.syncs_ready || g.uses_ptx
                 || g.is_deterministic);
    g = read_all("HVD_GPU=off HVD_NCCL_LIB=/l/n.so HVD_GPU_DIRECT=1M HVD_GPU_POOL=2M "
                 "HVD_GPU_GRAPH=1 HVD_GPU_REGISTER=1 HVD_GPU_READY=sync HVD_GPU_PTX=1 "
                 "HOROVOD_BATCH_D2D_MEMCOPIES=0 HOROVOD_DETERMINISTIC=1 "
                 "PERSEUS_ALLREDUCE_STREAMS=3")
            .gpu;
    assert_int_equal(g.direct_bytes, 1u << 20);
    assert_int_equal(g.pool_bytes, 2u << 20);
    assert_int_equal(g.n_streams, 3);
    assert_string_equal(g.nccl_lib, "/l/n.so");
    assert_true(g.is_off && g.uses_graphs && g.registers && g.syncs_ready && g.uses_ptx
                && g.is_deterministic);
    assert_false(g.batches_copies);
    g = read_all("HOROVOD_NUM_NCCL_STREAMS=2 PERSEUS_ALLREDUCE_STREAMS=3").gpu;
    assert_int_equal(g.n_streams, 2);
    g = read_all("HVD_GPU=OFF HVD_GPU_READY=Sync").gpu; /* as all choices are read */
    assert_true(g.is_off && g.syncs_ready);
    g = read_all("HVD_GPU=Auto HVD_GPU_READY=AUTO").gpu;
    assert_false(g.is_off || g.syncs_ready);
}

UNIT_TEST(one_switch_ends_all_stall_checks)
{
    struct settings s = read_all("HOROVOD_STALL_CHECK_DISABLE=1 "
                                 "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=9");

    assert_int_equal(s.stall_warn_ns, 0);
    assert_int_equal(s.stall_fail_ns, 0);
    assert_int_equal(read_all("HOROVOD_STALL_CHECK_DISABLE=1").deadlock_ns, 0);
}

UNIT_TEST(the_users_limit_of_a_stall_replaces_that_of_a_deadlock)
{
    assert_int_equal(read_all("").deadlock_ns, 600 * NS_PER_S);
    assert_int_equal(read_all("HVD_DEADLOCK_TIMEOUT=2").deadlock_ns, 2 * NS_PER_S);
    assert_int_equal(read_all("HOROVOD_STALL_CHECK_TIME_SECONDS=3600").deadlock_ns,
                     7200 * NS_PER_S); /* not before a report */
    assert_int_equal(read_all("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=0").deadlock_ns, 0);
    assert_int_equal(read_all("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=9").deadlock_ns, 0);
}

UNIT_TEST(dynamic_is_no_file_name)
{
    assert_string_equal(read_all("HOROVOD_TIMELINE=DYNAMIC").timeline, "");
    assert_string_equal(read_all("HOROVOD_TIMELINE=dynamic").timeline, "dynamic");
}

UNIT_TEST(either_name_hides_the_time)
{
    assert_false(read_all("HOROVOD_LOG_HIDE_TIME=1").has_log_time);
    assert_false(read_all("HOROVOD_LOG_TIMESTAMP=0").has_log_time);
    assert_true(read_all("HOROVOD_LOG_HIDE_TIME=0").has_log_time);
}

UNIT_TEST(garbage_leaves_the_settings_alone)
{
    struct settings s;
    struct err e = ERR_INIT;

    memset(&s, 0x55, sizeof(s));
    env.n = 0;
    fake_set(&env, "HOROVOD_CYCLE_TIME", "fast");
    assert_int_equal(settings_read(fake_get, &env, &s, &e), -EINVAL);
    assert_int_equal(s.fusion_bytes, 0x5555555555555555);
    assert_non_null(strstr(e.text, "HOROVOD_CYCLE_TIME: \"fast\""));
}

static char long_path[CONTRACT_PATH_MAX + 1];

static const char *get_long_path(void *arg, const char *name)
{
    (void)arg;
    return strcmp(name, "HOROVOD_TIMELINE") == 0 ? long_path : NULL;
}

UNIT_TEST(a_text_too_long_is_refused)
{
    struct settings s;
    struct err e = ERR_INIT;

    memset(long_path, 'x', CONTRACT_PATH_MAX);
    assert_int_equal(settings_read(get_long_path, NULL, &s, &e), -EINVAL);
    assert_string_equal(e.text, "HOROVOD_TIMELINE: longer than 1023 characters");
    long_path[CONTRACT_PATH_MAX - 1] = 0;
    assert_int_equal(settings_read(get_long_path, NULL, &s, &e), 0);
    assert_string_equal(s.timeline, long_path);
}

UNIT_TEST(each_local_rank_has_its_core)
{
    struct settings s = read_all("HOROVOD_THREAD_AFFINITY=3,40");
    struct err e = ERR_INIT;

    assert_int_equal(settings_set_core(&s, 1, 2, &e), 0);
    assert_int_equal(s.core, 40);
    assert_int_equal(settings_set_core(&s, 2, 3, &e), -EINVAL);
    assert_string_equal(e.text, "HOROVOD_THREAD_AFFINITY: \"3,40\" has no entry for "
                                "local rank 2; this host has 3 ranks");
    s = read_all("");
    assert_int_equal(settings_set_core(&s, 2, 3, &e), 0);
    assert_int_equal(s.core, -1);
}

static void *mover_main(void *arg)
{
    settings_move_to_core(arg);
    return NULL;
}

/* The first core that this process may use, and one that no machine has. */
UNIT_TEST(a_thread_moves_to_its_core)
{
    struct settings s = read_all("");
    cpu_set_t mine, its;
    pthread_t t;
    int core = 0;

    assert_int_equal(sched_getaffinity(0, sizeof(mine), &mine), 0);
    while (!CPU_ISSET((size_t)core, &mine))
        core++;
    s.core = core;
    assert_int_equal(pthread_create(&t, NULL, mover_main, &s), 0);
    assert_int_equal(pthread_join(t, NULL), 0); /* this thread stays where it was */
    assert_int_equal(sched_getaffinity(0, sizeof(its), &its), 0);
    assert_true(CPU_EQUAL(&its, &mine));
    settings_move_to_core(&s);
    assert_int_equal(sched_getaffinity(0, sizeof(its), &its), 0);
    assert_true(CPU_COUNT(&its) == 1 && CPU_ISSET((size_t)core, &its));
    assert_int_equal(sched_setaffinity(0, sizeof(mine), &mine), 0);
}

/* What fn writes to stderr. */
static const char *stderr_of(void (*fn)(void))
{
    static char text[8192];
    int fds[2], old = dup(STDERR_FILENO);
    size_t n = 0;
    ssize_t k;

    assert_int_equal(pipe(fds), 0);
    assert_true(dup2(fds[1], STDERR_FILENO) >= 0);
    (void)close(fds[1]);
    fn();
    assert_true(dup2(old, STDERR_FILENO) >= 0);
    (void)close(old);
    while ((k = read(fds[0], text + n, sizeof(text) - 1 - n)) > 0)
        n += (size_t)k;
    (void)close(fds[0]);
    text[n] = 0;
    return text;
}

static void log_unused(void)
{
    static char fuse[] = "HOROVOD_FUSION_TRESHOLD=1", path[] = "PATH=/bin", bad[] = "x",
                lng[] = "HOROVOD_A_NAME_THAT_IS_LONGER_THAN_ANYTHING_THAT_WE_WOULD_"
                        "EVER_CALL_A_VARIABLE=1";
    char *const environment[] = {fuse, path, bad, lng, NULL};

    settings_log_unused(fake_get, &env, environment);
}

static void move_to_nowhere(void)
{
    static struct settings s = {.core = 65535};

    settings_move_to_core(&s);
}

UNIT_TEST(a_core_that_is_not_there_is_a_warning)
{
    log_set_level(LOG_WARN);
    assert_non_null(strstr(stderr_of(move_to_nowhere),
                           "cannot bind the runtime's thread to its core, continuing "
                           "on any core variable=HOROVOD_THREAD_AFFINITY core=65535 "));
}

UNIT_TEST(rank_0_logs_what_has_no_effect)
{
    const char *text;

    env.n = 0;
    fake_set_all(&env, "HOROVOD_ENABLE_XLA_OPS=1 HOROVOD_TORUS_ALLREDUCE=1");
    log_set_time(false);
    log_set_tag("ringmaster", "rank 0");
    log_set_level(LOG_WARN);
    text = stderr_of(log_unused);
    assert_string_equal(
        text,
        "W ringmaster[rank 0]: a variable requests a missing feature, continuing "
        "without it HOROVOD_ENABLE_XLA_OPS=1 has no effect: operations run outside "
        "XLA clusters in this version\n"
        "W ringmaster[rank 0]: an unknown variable looks like a typing error and has "
        "no effect variable=HOROVOD_FUSION_TRESHOLD "
        "nearest=HOROVOD_FUSION_THRESHOLD\n");
    log_set_level(LOG_INFO);
    text = stderr_of(log_unused);
    assert_non_null(strstr(text, "I ringmaster[rank 0]: a variable has no effect "
                                 "HOROVOD_TORUS_ALLREDUCE=1 has no effect: NCCL "
                                 "chooses its algorithms\n"));
    log_set_time(true);
    text = stderr_of(log_unused);
    assert_true(text[0] == '2' && text[4] == '-' && strstr(text, "Z W ringmaster"));
}

UNIT_TEST(rank_0_logs_what_differs_from_perseus_default)
{
    static const char unset[] =
        "I ringmaster[rank 0]: nothing is compressed; in Perseus "
        "PERSEUS_ALLREDUCE_DTYPE is 0 (fp16) by default default=1\n";
    static const char mixed[] =
        "W ringmaster[rank 0]: a variable requests a missing feature, continuing "
        "without it PERSEUS_ALLREDUCE_DTYPE=2 has no effect: mixed types are not "
        "known here, 0 compresses to fp16\n";
    static const struct {
        const char *text, *line; /* "": no line about it */
    } t[] = {
        {"PERSEUS_ALLREDUCE_FUSION=32", unset},
        {"PERSEUS_WITH_K8S=1", unset},
        {"PERSEUS_ALLREDUCE_FUSION=32 HVD_COMPRESSION=none", ""},
        {"HOROVOD_FUSION_THRESHOLD=32", ""},
        {"PERSEUS_ALLREDUCE_DTYPE=0 PERSEUS_ALLREDUCE_FUSION=32", ""},
        {"PERSEUS_ALLREDUCE_DTYPE=1", ""},
        {"PERSEUS_ALLREDUCE_DTYPE=2", mixed},
    };

    log_set_time(false);
    log_set_tag("ringmaster", "rank 0");
    log_set_level(LOG_INFO);
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        const char *text, *at;

        env.n = 0;
        fake_set_all(&env, t[i].text);
        text = stderr_of(log_unused);
        at = strstr(text, t[i].line[0] ? t[i].line : "ompress");
        assert_true((at != NULL) == (t[i].line[0] != 0));
    }
    log_set_time(true);
}

UNIT_MAIN(NULL, NULL)
