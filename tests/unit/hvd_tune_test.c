/* SPDX-License-Identifier: Apache-2.0 */
/* Settings that change while a world works: the gather window, HOROVOD_AUTOTUNE and the
 * file of what it found, in real worlds. */
#include <time.h>

#include "tests/unit/hvd_world.h"

enum { T = 9, ELEMS = 3000, STEPS = 200 };

static const char *const tuning_env[] = {"HOROVOD_AUTOTUNE",
                                         "HOROVOD_AUTOTUNE_LOG",
                                         "HVD_AUTOTUNE_FILE",
                                         "HOROVOD_CYCLE_TIME",
                                         "HOROVOD_FUSION_THRESHOLD",
                                         "HOROVOD_AUTOTUNE_WARMUP_SAMPLES",
                                         "HOROVOD_CACHE_CAPACITY",
                                         "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE",
                                         "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES"};
static char log_path[64], file_path[64], stderr_path[64];
static bool has_hosts; /* each rank is a host of its own: TCP */

static void env_clean(void)
{
    has_hosts = false;
    for (size_t i = 0; i < ARRAY_LEN(tuning_env); i++)
        (void)unsetenv(tuning_env[i]);
    (void)snprintf(log_path, sizeof(log_path), "/tmp/hvd-tune-%d.csv", (int)getpid());
    (void)snprintf(file_path, sizeof(file_path), "/tmp/hvd-tune-%d.cfg", (int)getpid());
    (void)snprintf(stderr_path, sizeof(stderr_path), "/tmp/hvd-tune-%d.err",
                   (int)getpid());
    (void)unlink(log_path);
    (void)unlink(file_path);
    (void)unlink(stderr_path);
}

/* A test with an environment and files of its own. */
#define TUNE_TEST(name)                                                                \
    static void name##_clean(void);                                                    \
    UNIT_TEST(name)                                                                    \
    {                                                                                  \
        env_clean();                                                                   \
        name##_clean();                                                                \
        env_clean();                                                                   \
    }                                                                                  \
    static void name##_clean(void)

/* --- the window --- */

/* A window that a test waits for, and one that ends early: EARLY_NS is far from it, so
 * that a busy machine cannot be taken for a window that was kept open. */
#define WINDOW_NS (300 * NS_PER_MS)
#define LONG_NS   (10 * NS_PER_S) /* the largest that is allowed */
#define EARLY_NS  (5 * NS_PER_S)

static void window_set(uint64_t ns)
{
    char ms[24];

    (void)snprintf(ms, sizeof(ms), "%llu", (unsigned long long)(ns / NS_PER_MS));
    (void)setenv("HOROVOD_CYCLE_TIME", ms, 1);
}

/* By polling: a thread that waits would end the window. Nanoseconds since t0. */
static uint64_t poll_to_end(hvd_handle h, uint64_t t0)
{
    while (hvd_poll(h) == HVD_IN_PROGRESS) {
        struct timespec ts = {.tv_nsec = 200000};

        (void)nanosleep(&ts, NULL); /* other threads get the processor meanwhile */
    }
    CHECK_OK(wait_release(h));
    return clock_now_ns() - t0;
}

static void two_by_polling(uint64_t *ret_ns)
{
    float a = 1, b = 2;
    uint64_t t0 = clock_now_ns();
    hvd_handle h[2];

    CHECK_OK(sum_async("a", &a, 1, &h[0]));
    CHECK_OK(sum_async("b", &b, 1, &h[1]));
    (void)poll_to_end(h[0], t0);
    *ret_ns = poll_to_end(h[1], t0);
}

/* In worlds of several sizes; the last one without a response cache. */
static void worlds_run(rank_fn fn)
{
    world_run(1, fn);
    world_run(3, fn);
    (void)setenv("HOROVOD_CACHE_CAPACITY", "0", 1);
    world_run(2, fn);
}

INIT_BODY(window_body)
{
    struct hvd_stats s0, s1;
    uint64_t ns;

    CHECK(stats_now().gather_ns == WINDOW_NS, "the window");
    s0 = stats_now();
    two_by_polling(&ns);
    s1 = stats_now();
    CHECK(ns >= WINDOW_NS, "%llu ns", (unsigned long long)ns);
    CHECK(s1.fused - s0.fused == 2, "%llu", (unsigned long long)(s1.fused - s0.fused));
}

TUNE_TEST(a_tensor_waits_for_others_for_the_window)
{
    window_set(WINDOW_NS);
    worlds_run(window_body);
}

INIT_BODY(early_body)
{
    uint64_t ns, t0;
    float a = 1, c = 1;
    hvd_handle h, hb;
    struct hvd_tensor bar = {.size_bytes = sizeof(bar), .name = "bar", .device = -1};

    t0 = clock_now_ns(); /* a thread that waits has nothing more to submit */
    CHECK_OK(sum_now("a", &a, 1));
    ns = clock_now_ns() - t0;
    CHECK(ns < EARLY_NS, "%llu ns", (unsigned long long)ns);

    t0 = clock_now_ns(); /* a barrier is never fused */
    CHECK_OK(sum_async("c", &c, 1, &h));
    CHECK_OK(hvd_barrier_async(&bar, 0, &hb));
    ns = poll_to_end(hb, t0);
    CHECK(ns < EARLY_NS, "%llu ns", (unsigned long long)ns);
    CHECK(poll_to_end(h, t0) < EARLY_NS, "c came later");
    CHECK(c == (float)size, "%g", (double)c);
}

TUNE_TEST(a_window_ends_with_a_wait_or_a_barrier)
{
    window_set(LONG_NS);
    worlds_run(early_body);
}

INIT_BODY(full_body)
{
    uint64_t ns = 0;

    two_by_polling(&ns); /* together they are a full batch */
    CHECK(ns < EARLY_NS, "%llu ns", (unsigned long long)ns);
}

TUNE_TEST(a_full_batch_does_not_wait)
{
    window_set(LONG_NS);
    (void)setenv("HOROVOD_FUSION_THRESHOLD", "8", 1);
    world_run(2, full_body);
}

INIT_BODY(planned_body)
{
    uint64_t ns = 0, t0;
    struct hvd_stats s;
    float a = 1, b = 1;
    hvd_handle h, hb;

    for (int i = 0; i < 6; i++) { /* fast ones: a thread waits */
        CHECK_OK(sum_async("a", &a, 1, &h));
        CHECK_OK(sum_now("b", &b, 1));
        CHECK_OK(wait_release(h));
    }
    CHECK(stats_now().plans == 1, "no plan");
    two_by_polling(&ns); /* the whole of the plan */
    CHECK(ns < EARLY_NS, "%llu ns", (unsigned long long)ns);
    s = stats_now();
    if (stats_now().gather_ns == WINDOW_NS) {
        t0 = clock_now_ns();
        CHECK_OK(sum_async("a", &a, 1, &h));
        ns = poll_to_end(h, t0); /* half of it */
        CHECK(ns >= WINDOW_NS, "%llu ns", (unsigned long long)ns);
        CHECK_OK(sum_async("b", &b, 1, &hb));
        CHECK_OK(wait_release(hb));
    }
    CHECK(stats_now().plan_leaves == s.plan_leaves, "the plan was left");
}

TUNE_TEST(a_complete_plan_does_not_wait)
{
    window_set(LONG_NS); /* none of it is waited for */
    world_run(1, planned_body);
    world_run(3, planned_body);
    window_set(WINDOW_NS); /* half a plan waits for all of it */
    world_run(3, planned_body);
}

/* --- tuning --- */

static float element_value(int rank, int tensor, int i, int step)
{
    return (float)((rank * 31 + tensor * 17 + i * 7 + step) % 1009) * 1.0e-3f
           + (float)(rank + 1) * 1.0e4f * (float)(i % 3);
}

static uint64_t hash_add(uint64_t h, const void *p, size_t n)
{
    const uint8_t *b = p;

    for (size_t i = 0; i < n; i++)
        h = (h ^ b[i]) * 0x100000001b3ull;
    return h;
}

static int64_t tensor_elements(int tensor)
{
    return ELEMS / (tensor + 1);
}

static uint64_t one_step(int rank, int step, uint64_t hash)
{
    static float v[T][ELEMS];
    hvd_handle h[T];
    char name[16];

    for (int t = 0; t < T; t++) {
        for (int i = 0; i < ELEMS; i++)
            v[t][i] = element_value(rank, t, i, step);
        (void)snprintf(name, sizeof(name), "t%d", t);
        CHECK_OK(sum_async(name, v[t], tensor_elements(t), &h[t]));
    }
    for (int t = 0; t < T; t++) {
        CHECK_OK(wait_release(h[t]));
        hash = hash_add(hash, v[t], (size_t)tensor_elements(t) * sizeof(float));
    }
    return hash;
}

RANK_BODY(training_body)
{
    uint64_t h = 0xcbf29ce484222325ull;
    struct hvd_stats s;

    if (has_hosts) {
        char host[16];

        (void)snprintf(host, sizeof(host), "host%d", rank);
        (void)setenv("HVD_HOST_ID", host, 1);
    }
    CHECK(freopen(rank == 0 ? stderr_path : "/dev/null", "w", stderr), "stderr");
    CHECK_OK(hvd_init(NULL));
    for (int i = 0; i < STEPS; i++)
        h = one_step(rank, i, h);
    s = stats_now();
    CHECK(s.is_tuning == 0, "it is still going on");
    (void)snprintf(shared->r[rank].text, 512, "%llx %llu %llu", (unsigned long long)h,
                   (unsigned long long)s.fusion_bytes, (unsigned long long)s.gather_ns);
    shared->r[rank].failed_ns = h;
    shared->r[rank].status = (int)s.plan_leaves;
    atomic_store(&shared->r[rank].stage, (uint32_t)(s.fusion_bytes >> 10));
    CHECK_OK(hvd_shutdown());
}

/* All ranks have the same sums and settings. */
static void training_run(int size)
{
    world_run(size, training_body);
    for (int r = 1; r < size; r++)
        assert_string_equal(shared->r[r].text, shared->r[0].text);
}

static char *text_of(const char *path)
{
    static char text[8192];
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;

    text[n] = 0;
    if (f)
        (void)fclose(f);
    return text;
}

static uint64_t number_in(const char *text, const char *key)
{
    const char *at = strstr(text, key);

    if (!at)
        fail_msg("%s is not in: %s", key, text);
    return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

static void set_short_search(void)
{
    (void)setenv("HOROVOD_AUTOTUNE", "1", 1);
    (void)setenv("HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "1", 1);
    (void)setenv("HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "2", 1);
    (void)setenv("HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "20", 1);
    (void)setenv("HOROVOD_AUTOTUNE_LOG", log_path, 1);
    (void)setenv("HVD_AUTOTUNE_FILE", file_path, 1);
}

static void check_tuning(bool are_hosts)
{
    uint64_t plain, fusion;
    const char *text;
    int n_lines = 0;

    has_hosts = are_hosts;
    training_run(3);
    plain = shared->r[1].failed_ns;
    set_short_search();
    training_run(3);
    assert_true(shared->r[1].failed_ns == plain); /* the same bits */
    assert_true(shared->r[2].status >= 8);        /* settings changed, on all */
    fusion = atomic_load(&shared->r[2].stage);
    text = text_of(log_path);
    for (const char *p = text; (p = strchr(p, '\n')); p++)
        n_lines++;
    assert_in_range(n_lines, 10, 22); /* a head, one of warming up, at most 20 */
    assert_non_null(strstr(text, "\n1,1,0,128,0,0,"));
    assert_non_null(strstr(text, "\n2,0,0,128,0,0,"));
    text = text_of(file_path);
    assert_int_equal(number_in(text, "\nranks="), 3);
    assert_int_equal(number_in(text, "\nfusion_threshold=") >> 10, fusion);
    if (!are_hosts)
        assert_int_equal(number_in(text, "\ntcp_whole_bytes="), 0);
}

TUNE_TEST(tuning_changes_all_ranks_and_no_bit)
{
    check_tuning(false);
}

TUNE_TEST(tuning_changes_tcp_too)
{
    check_tuning(true);
    assert_non_null(strstr(text_of(log_path), ",32768,0,"));
}

static void write_file(const char *text)
{
    assert_int_equal(fd_write_file(file_path, text, strlen(text), 0644, NULL), 0);
}

#define FOUND(ranks)                                                                   \
    "version=1\nranks=" #ranks "\nhosts=1\nfusion_threshold=2048\ncycle_time_us=7\n"   \
    "tcp_whole_bytes=0\ntcp_chunk_bytes=0\n"

TUNE_TEST(what_was_found_is_used)
{
    set_short_search();
    write_file(FOUND(3));
    training_run(3);
    assert_int_equal(atomic_load(&shared->r[2].stage), 2); /* KiB */
    assert_string_equal(text_of(log_path), "");            /* nothing was tried */
    assert_string_equal(text_of(stderr_path), "");
    (void)unsetenv("HOROVOD_AUTOTUNE"); /* without it, too */
    training_run(3);
    assert_int_equal(atomic_load(&shared->r[2].stage), 2);
    (void)setenv("HOROVOD_FUSION_THRESHOLD", "1M", 1); /* the user's word counts more */
    training_run(3);
    assert_int_equal(atomic_load(&shared->r[2].stage), 1024);
}

TUNE_TEST(a_file_that_does_not_fit_is_not_used)
{
    char want[300];

    (void)setenv("HVD_AUTOTUNE_FILE", file_path, 1);
    write_file(FOUND(4));
    training_run(3);
    assert_int_equal(atomic_load(&shared->r[2].stage), 128 << 10);
    (void)snprintf(want, sizeof(want),
                   "the autotune file is not used, continuing without it "
                   "variable=HVD_AUTOTUNE_FILE cause=\"%s: found with 4 ranks on 1 "
                   "hosts, this world has 3 on 1\"",
                   file_path);
    if (!strstr(text_of(stderr_path), want))
        fail_msg("%s", text_of(stderr_path));
    write_file("fusion_threshold=lots\n");
    training_run(3);
    (void)snprintf(want, sizeof(want),
                   "cause=\"%s, line 1: fusion_threshold: \"lots\" is", file_path);
    assert_non_null(strstr(text_of(stderr_path), want));
    assert_string_equal(text_of(file_path), "fusion_threshold=lots\n"); /* the user's */
}

TUNE_TEST(files_that_cannot_be_written_are_no_matter)
{
    set_short_search();
    (void)setenv("HOROVOD_AUTOTUNE_LOG", "/no/such/folder/log", 1);
    (void)setenv("HVD_AUTOTUNE_FILE", "/no/such/folder/file", 1);
    training_run(2);
    assert_non_null(strstr(text_of(stderr_path),
                           "cannot write the autotune log, continuing without it"));
    assert_non_null(strstr(text_of(stderr_path),
                           "cannot save the settings that autotune has found"));
}

UNIT_MAIN(NULL, NULL)
