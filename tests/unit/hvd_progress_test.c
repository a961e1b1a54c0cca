/* SPDX-License-Identifier: Apache-2.0 */
/* What a program reports by hvd_progress arrives in its page, and in that of its next
 * world. */
#include <math.h>
#include <pthread.h>

#include "runtime/api/progress.h"
#include "tests/unit/folder.h"
#include "tests/unit/hvd_world.h"

static struct hvd_progress nothing_given(void)
{
    return (struct hvd_progress){.size_bytes = sizeof(struct hvd_progress),
                                 .step = -1,
                                 .total_steps = -1,
                                 .epoch = -1,
                                 .total_epochs = -1,
                                 .samples = -1};
}

static struct stats_progress shown(const struct stats_page *page)
{
    struct stats_progress p;

    stats_page_get_progress(page, &p);
    return p;
}

UNIT_TEST(what_is_not_given_stays)
{
    static struct progress p = PROGRESS_INIT;
    static struct stats_page page;
    const struct hvd_metric loss = {"loss", 0.5}, rate = {"rate", NAN};
    struct hvd_progress g = nothing_given();
    struct stats_progress r;

    assert_int_equal(progress_update(&p, &g, 7, &page, NULL), 0);
    r = shown(&page);
    assert_true(r.step == -1 && r.total_steps == -1 && r.epoch == -1);
    assert_true(r.total_epochs == -1 && r.samples == -1 && r.commit_step == -1);
    assert_true(r.updated_wall_us == 7 && r.commit_wall_us == 0 && r.n_metrics == 0);
    g = (struct hvd_progress){sizeof(g), 0, 100, 1, 3, INT64_MAX, 0, 1, &loss};
    assert_int_equal(progress_update(&p, &g, 8, &page, NULL), 0);
    g = nothing_given();
    g.step = 5;
    g.metrics = &rate;
    g.n_metrics = 1;
    assert_int_equal(progress_update(&p, &g, 9, &page, NULL), 0);
    r = shown(&page);
    assert_true(r.step == 5 && r.total_steps == 100 && r.epoch == 1);
    assert_true(r.total_epochs == 3 && r.samples == INT64_MAX
                && r.updated_wall_us == 9);
    assert_int_equal(r.n_metrics, 2);
    assert_string_equal(r.metrics[0].name, "loss");
    assert_true(r.metrics[0].value == 0.5 && isnan(r.metrics[1].value));
}

UNIT_TEST(a_commit_keeps_its_step)
{
    static struct progress p = PROGRESS_INIT;
    static struct stats_page page;
    struct hvd_progress g = nothing_given();
    struct stats_progress r;

    g.step = 40;
    assert_int_equal(progress_update(&p, &g, 8, &page, NULL), 0);
    g.step = -1;
    g.is_commit = 1;
    assert_int_equal(progress_update(&p, &g, 9, &page, NULL), 0);
    g.is_commit = 0;
    g.step = 50;
    assert_int_equal(progress_update(&p, &g, 10, &page, NULL), 0);
    r = shown(&page);
    assert_true(r.commit_wall_us == 9 && r.commit_step == 40);
    assert_true(r.updated_wall_us == 10 && r.step == 50);
    g.is_commit = 1;
    assert_int_equal(progress_update(&p, &g, 11, &page, NULL), 0);
    assert_int_equal(shown(&page).updated_wall_us, 10); /* it is no sign of progress */
}

UNIT_TEST(a_new_name_replaces_the_metric_set_longest_ago)
{
    static struct progress p = PROGRESS_INIT;
    static struct stats_page page;
    struct hvd_progress g = nothing_given();
    struct stats_progress r;
    struct hvd_metric m;
    char name[8];

    g.metrics = &m;
    g.n_metrics = 1;
    m.name = name;
    for (int i = 0; i < STATS_METRICS_MAX + 1; i++) {
        (void)snprintf(name, sizeof(name), "m%d", i);
        m.value = i;
        assert_int_equal(progress_update(&p, &g, 1, &page, NULL), 0);
        if (i == STATS_METRICS_MAX - 1) { /* m0 is set again, so m1 is the oldest */
            m = (struct hvd_metric){"m0", 100};
            assert_int_equal(progress_update(&p, &g, 1, &page, NULL), 0);
            m.name = name;
        }
    }
    r = shown(&page);
    assert_int_equal(r.n_metrics, STATS_METRICS_MAX);
    assert_string_equal(r.metrics[0].name, "m0");
    assert_true(r.metrics[0].value == 100);
    assert_string_equal(r.metrics[1].name, "m16");
    assert_string_equal(r.metrics[2].name, "m2");
}

UNIT_TEST(bad_values_change_nothing)
{
    static const char long_name[] = "01234567890123456789012345678901234567890123456789"
                                    "01234567890123456789012345678"
                                    "9012345678901234567890123456789012345678901234567";
    static const struct hvd_metric good = {"loss", 1}, empty = {"", 1},
                                   null = {NULL, 1}, line = {"a\nb", 1},
                                   bytes = {"a\xff", 1}, longer = {long_name, 1};
    static const struct {
        struct hvd_progress given;
        const char *text;
    } cases[] = {
        {{0, -2, 9, 9, 9, 9, 0, 0, NULL}, "step: -2 is negative"},
        {{0, 9, INT64_MIN, 9, 9, 9, 0, 0, NULL},
         "total_steps: -9223372036854775808 is negative"},
        {{0, 9, 9, -3, 9, 9, 0, 0, NULL}, "epoch: -3 is negative"},
        {{0, 9, 9, 9, -4, 9, 0, 0, NULL}, "total_epochs: -4 is negative"},
        {{0, 9, 9, 9, 9, -5, 0, 0, NULL}, "samples: -5 is negative"},
        {{0, 9, 9, 9, 9, 9, 0, 17, &good}, "metrics: 17, at most 16 are allowed"},
        {{0, 9, 9, 9, 9, 9, 0, -1, &good}, "metrics: -1, at most 16 are allowed"},
        {{0, 9, 9, 9, 9, 9, 0, 1, NULL}, "metrics: is NULL"},
        {{0, 9, 9, 9, 9, 9, 0, 1, &empty}, "metrics: a name is empty"},
        {{0, 9, 9, 9, 9, 9, 0, 1, &null}, "metrics: a name is empty"},
        {{0, 9, 9, 9, 9, 9, 0, 1, &line},
         "metrics: byte 1 of a name is a control character or not UTF-8"},
        {{0, 9, 9, 9, 9, 9, 0, 1, &bytes},
         "metrics: byte 1 of a name is a control character or not UTF-8"},
        {{0, 9, 9, 9, 9, 9, 0, 1, &longer},
         "metrics: the name \"0123456789012345678901234567890123456789...\" is longer "
         "than 127 bytes"},
    };
    static struct progress p = PROGRESS_INIT;
    static struct stats_page page;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err e = ERR_INIT;

        assert_int_equal(progress_update(&p, &cases[i].given, 7, &page, &e),
                         HVD_INVALID_ARGUMENT);
        assert_string_equal(e.text, cases[i].text);
        assert_int_equal(shown(&page).updated_wall_us, 0);
        assert_int_equal(p.now.step, -1);
    }
}

/* --- whole ranks --- */

static void page_of(int rank, struct stats_page *ret)
{
    AUTOFREE char *p = NULL;
    char path[128];
    struct err e = ERR_INIT;
    size_t n;

    (void)snprintf(path, sizeof(path), "%s/rank.%d", getenv("HVD_STATS_DIR"), rank);
    CHECK(fd_read_file(path, 1 << 20, &p, &n, &e) == 0, "%s", e.text);
    CHECK(stats_page_check(p, n, &e) == 0, "%s", e.text);
    memcpy(ret, p, sizeof(*ret));
}

RANK_BODY(report)
{
    static struct stats_page page;
    struct hvd_progress g = nothing_given();
    struct stats_progress r;
    float v[1] = {0};

    CHECK_FAILS(hvd_progress(&g), HVD_NOT_INITIALIZED, "has not been initialized");
    CHECK_OK(hvd_init(NULL));
    CHECK_FAILS(hvd_progress(NULL), HVD_INVALID_ARGUMENT, "progress: is NULL");
    g.step = -7;
    CHECK_FAILS_AS(hvd_progress(&g), HVD_INVALID_ARGUMENT, "step: -7 is negative");
    g.step = 12;
    g.samples = 64;
    CHECK_OK(hvd_progress(&g)); /* before the first collective */
    page_of(rank, &page);
    r = shown(&page);
    CHECK(r.step == 12 && r.samples == 64 && r.total_steps == -1, "%d", (int)r.step);
    CHECK(r.updated_wall_us >= page.begin_wall_us
              && r.updated_wall_us <= clock_wall_us(),
          "%llu", (unsigned long long)r.updated_wall_us);
    CHECK_OK(sum_now("a", v, 1));
    CHECK_OK(hvd_shutdown());
    CHECK_OK(hvd_init(NULL)); /* what an elastic program does */
    page_of(rank, &page);
    r = shown(&page);
    CHECK(r.step == 12 && r.samples == 64, "%d", (int)r.step);
    g = (struct hvd_progress){
        .size_bytes = offsetof(struct hvd_progress, n_metrics),
        13,
        -1,
        -1,
        -1,
        -1,
        1,
        5,
        (const void *)1}; /* of an older caller: without metrics */
    CHECK_OK(hvd_progress(&g));
    page_of(rank, &page);
    r = shown(&page);
    CHECK(r.step == 13 && r.commit_step == 13 && r.n_metrics == 0, "%d", (int)r.step);
    CHECK_OK(sum_now("a", v, 1));
    CHECK_OK(hvd_shutdown());
}

UNIT_TEST(reports_are_in_the_page_of_each_world)
{
    char dir[] = "/tmp/hvd-progress-XXXXXX";

    assert_non_null(mkdtemp(dir));
    (void)setenv("HVD_STATS_DIR", dir, 1);
    world_run(2, report);
    (void)unsetenv("HVD_STATS_DIR");
    folder_remove(dir);
}

enum { CALLS = 2000, THREADS = 3 };

static void *report_on(void *arg)
{
    struct hvd_progress g = nothing_given();
    const struct hvd_metric m = {arg, 1};

    g.metrics = &m;
    g.n_metrics = 1;
    for (int i = 0; i < CALLS; i++) {
        g.step = i;
        if (hvd_progress(&g) != HVD_OK)
            return arg;
    }
    return NULL;
}

INIT_BODY(report_from_threads)
{
    static char names[THREADS][2] = {"a", "b", "c"};
    static struct stats_page page;
    pthread_t t[THREADS];
    void *failed;

    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&t[i], NULL, report_on, names[i]) == 0, "%d", i);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(t[i], &failed) == 0 && !failed, "%s", hvd_last_error());
    page_of(rank, &page);
    CHECK(shown(&page).n_metrics == THREADS, "%d", (int)shown(&page).n_metrics);
    CHECK(page.progress_turn % 2 == 0, "%llu", (unsigned long long)page.progress_turn);
}

UNIT_TEST(any_thread_may_report)
{
    char dir[] = "/tmp/hvd-progress-XXXXXX";

    assert_non_null(mkdtemp(dir));
    (void)setenv("HVD_STATS_DIR", dir, 1);
    world_run(1, report_from_threads);
    (void)unsetenv("HVD_STATS_DIR");
    folder_remove(dir);
}

UNIT_MAIN(NULL, NULL)
