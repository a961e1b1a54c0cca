/* SPDX-License-Identifier: Apache-2.0 */
/* Counters: what is added arrives in struct hvd_stats, in the Prometheus text and in
 * the launcher's file. The way through whole ranks is hvd_observe_test.c. */
#include <ctype.h>
#include <pthread.h>

#include "tests/unit/unit.h"

#include "runtime/observe/stats.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "tests/unit/generated.h"

static char dir[] = "/tmp/hvd-stats-XXXXXX";
static char path[64];

static int make_dir(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    (void)snprintf(path, sizeof(path), "%s/rank.3", dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(dir);
}

static struct hvd_stats stats_now(const struct stats *s, uint64_t now_ns)
{
    struct hvd_stats v;

    memset(&v, 0x55, sizeof(v));
    v.size_bytes = sizeof(v);
    stats_read(s, now_ns, &v);
    return v;
}

UNIT_TEST(a_new_world_has_counted_nothing)
{
    static struct stats s;
    struct hvd_stats v;

    stats_init(&s, "", 3, 8, 2, 1000);
    v = stats_now(&s, 5000);
    assert_int_equal(v.rank, 3);
    assert_int_equal(v.size, 8);
    assert_int_equal(v.age_ns, 4000);
    for (size_t i = offsetof(struct hvd_stats, tensors); i < sizeof(v); i++)
        assert_int_equal(((unsigned char *)&v)[i], 0);
    assert_true(v.allreduce_bus_bytes_per_s == 0 && v.steps_per_s == 0);
    stats_release(&s);
}

UNIT_TEST(overlapping_waits_count_once)
{
    static struct stats s;

    stats_init(&s, "", 0, 2, 0, 0);
    stats_copy_blocked(&s, 50);
    assert_int_equal(stats_now(&s, 50).blocked_ns, 0);
    stats_block_begin(&s, 100);
    stats_copy_blocked(&s, 90); /* the step began before the wait */
    assert_int_equal(stats_now(&s, 90).blocked_ns, 0);
    stats_copy_blocked(&s, 130);
    assert_int_equal(stats_now(&s, 130).blocked_ns, 30);
    stats_block_end(&s, 140);
    stats_copy_blocked(&s, 500);
    assert_int_equal(stats_now(&s, 500).blocked_ns, 40);
    stats_block_end(&s, 700); /* of a thread that began at 600 and has not added it */
    stats_block_begin(&s, 600);
    stats_copy_blocked(&s, 800);
    assert_int_equal(stats_now(&s, 800).blocked_ns, 140);
    stats_release(&s);
}

UNIT_TEST(batches_give_bandwidth)
{
    static struct stats s;
    struct hvd_stats v;

    stats_init(&s, "", 0, 4, 0, 0);
    stats_batch(&s, COLL_ALLREDUCE, 3, 4, 1000000000, 50, 500000000);
    stats_batch(&s, COLL_BROADCAST, 1, 4, 1000, 7, 11);
    v = stats_now(&s, 1);
    assert_int_equal(v.batches, 2);
    assert_int_equal(v.fused, 3);
    assert_int_equal(v.wait_ns, 57);
    assert_int_equal(v.backend_ns, 500000011);
    assert_int_equal(v.allreduce_ns, 500000000);
    assert_int_equal(v.allreduce_bus_bytes, 1500000000); /* 2 * 3 / 4 */
    assert_true(v.allreduce_bus_bytes_per_s > 2.999e9
                && v.allreduce_bus_bytes_per_s < 3.001e9);
    stats_batch(&s, COLL_ALLREDUCE, 1, 1, 1000, 0, 10); /* alone: nothing on a bus */
    assert_int_equal(stats_now(&s, 1).allreduce_bus_bytes, 1500000000);
    stats_release(&s);
}

UNIT_TEST(steps_count_while_they_follow_each_other)
{
    static struct stats s;
    struct hvd_stats v;

    stats_init(&s, "", 0, 4, 0, 0);
    stats_step(&s, 100);
    assert_int_equal(stats_now(&s, 1).steps, 0); /* when did it begin? */
    stats_step(&s, 100 + 500000000);
    stats_step(&s, 100 + 1000000000);
    stats_no_step(&s);
    stats_step(&s, 900000000000); /* a pause is no step */
    v = stats_now(&s, 1);
    assert_int_equal(v.steps, 2);
    assert_int_equal(v.step_ns, 1000000000);
    assert_true(v.steps_per_s > 1.999 && v.steps_per_s < 2.001);
    stats_release(&s);
}

UNIT_TEST(an_older_caller_gets_what_it_knows)
{
    static struct stats s;
    struct hvd_stats v;

    stats_init(&s, "", 0, 4, 0, 0);
    stats_add(&s, STATS_BATCHES, 9);
    stats_add(&s, STATS_STEP_NS, 8);
    memset(&v, 0x55, sizeof(v));
    v.size_bytes = offsetof(struct hvd_stats, step_ns);
    stats_read(&s, 1, &v);
    assert_int_equal(v.batches, 9);
    assert_int_equal(v.step_ns, 0x5555555555555555);
    assert_int_equal(v.size_bytes, offsetof(struct hvd_stats, step_ns));
    stats_release(&s);
}

UNIT_TEST(kinds_have_the_names_of_collectives)
{
    for (size_t k = 0; k < COLL_COUNT; k++) {
        const char *a = stats_kind_name(k), *b = collective_name((enum collective)k);

        assert_non_null(a);
        for (size_t i = 0; i <= strlen(a); i++)
            assert_int_equal(a[i], tolower((unsigned char)b[i]));
    }
    assert_null(stats_kind_name(COLL_COUNT));
    assert_true(COLL_COUNT <= STATS_KINDS);
}

/* --- progress --- */

static struct stats_progress progress_now(const struct stats *s)
{
    struct stats_progress p;

    memset(&p, 0x55, sizeof(p));
    stats_page_get_progress(s->page, &p);
    return p;
}

UNIT_TEST(a_new_world_knows_no_progress)
{
    static struct stats s;
    struct stats_progress p;
    uint64_t before_us = clock_wall_us();

    stats_init(&s, "", 3, 8, 7, 0);
    assert_in_range(s.page->begin_wall_us, before_us, clock_wall_us());
    p = progress_now(&s);
    assert_true(p.step == -1 && p.total_steps == -1 && p.epoch == -1);
    assert_true(p.total_epochs == -1 && p.samples == -1 && p.commit_step == -1);
    assert_true(p.updated_wall_us == 0 && p.commit_wall_us == 0 && p.n_metrics == 0);
    stats_release(&s);
}

UNIT_TEST(progress_is_read_as_it_was_put)
{
    static struct stats s;
    struct stats_progress p, q;

    stats_init(&s, "", 3, 8, 7, 0);
    stats_progress_init(&p);
    p.step = 17;
    p.samples = INT64_MAX;
    p.updated_wall_us = 5;
    p.n_metrics = 2;
    (void)strcpy(p.metrics[0].name, "loss");
    p.metrics[0].value = 0.25;
    memset(p.metrics[1].name, 'x', STATS_NAME_MAX - 1);
    p.metrics[1].name[STATS_NAME_MAX - 1] = '\0';
    p.metrics[1].value = -1e300;
    stats_page_put_progress(s.page, &p);
    q = progress_now(&s);
    assert_memory_equal(&p, &q, offsetof(struct stats_progress, metrics[2]));
    p.n_metrics = 0;
    stats_page_put_progress(s.page, &p);
    assert_int_equal(progress_now(&s).n_metrics, 0);
    stats_release(&s);
}

UNIT_TEST(impossible_metrics_are_left_out)
{
    static struct stats s;
    struct stats_progress p;

    stats_init(&s, "", 3, 8, 7, 0);
    stats_progress_init(&p);
    p.step = 17;
    p.n_metrics = 3;
    (void)strcpy(p.metrics[0].name, "loss");
    memset(p.metrics[1].name, 'x', STATS_NAME_MAX); /* no end */
    (void)strcpy(p.metrics[2].name, "accuracy");
    stats_page_put_progress(s.page, &p);
    p = progress_now(&s);
    assert_int_equal(p.n_metrics, 2);
    assert_string_equal(p.metrics[1].name, "accuracy");
    s.page->progress_turn++; /* it is being written */
    p = progress_now(&s);
    assert_int_equal(p.n_metrics, 0);
    assert_int_equal(p.step, 17);
    s.page->progress_turn++;
    assert_int_equal(progress_now(&s).n_metrics, 2);
    atomic_store(&s.page->progress[offsetof(struct stats_progress, n_metrics) / 8],
                 STATS_METRICS_MAX + 1);
    assert_int_equal(progress_now(&s).n_metrics, 0);
    stats_release(&s);
}

/* --- text --- */

UNIT_TEST(lines_of_a_metric_stand_together)
{
    static struct stats a, b;
    const struct stats_page *pages[2];
    CLEANUP(strbuf_release) struct strbuf text = {0};
    static const char want[] =
        "# HELP hvd_world_generation generation of the world\n"
        "# TYPE hvd_world_generation gauge\n"
        "hvd_world_generation{rank=\"0\"} 5\n"
        "hvd_world_generation{rank=\"1\"} 5\n"
        "# HELP hvd_tensors_total tensors that succeeded, by collective\n"
        "# TYPE hvd_tensors_total counter\n"
        "hvd_tensors_total{rank=\"0\",kind=\"allreduce\"} 1\n"
        "hvd_tensors_total{rank=\"1\",kind=\"allgather\"} 1\n"
        "# HELP hvd_input_bytes_total";
    const char *p;

    stats_init(&a, "", 0, 2, 5, 0);
    stats_init(&b, "", 1, 2, 5, 0);
    stats_tensor(&a, COLL_ALLREDUCE, true, 100, 100);
    stats_tensor(&b, COLL_ALLGATHER, true, 1, 2);
    stats_add(&b, STATS_BACKEND_NS, 1500000001);
    pages[0] = a.page;
    pages[1] = b.page;
    strbuf_init(&text, 1 << 20);
    stats_page_text(pages, 2, &text);
    assert_int_equal(strbuf_status(&text), 0);
    p = strstr(strbuf_str(&text), "# HELP hvd_world_generation");
    assert_non_null(p);
    assert_int_equal(strncmp(p, want, strlen(want)), 0);
    assert_non_null(strstr(p, "hvd_backend_seconds_total{rank=\"1\"} 1.500000001\n"));
    assert_non_null(strstr(p, "hvd_steps_total{rank=\"0\"} 0\n"));
    stats_release(&a);
    stats_release(&b);
}

/* What promtool would say of the form, line by line. */
UNIT_TEST(each_line_has_prometheus_form)
{
    static struct stats s;
    const struct stats_page *page;
    CLEANUP(strbuf_release) struct strbuf text = {0};
    char metric[128] = "";
    char *copy, *save = NULL;

    stats_init(&s, "", 0, 2, 0, 0);
    for (int k = 0; k < COLL_COUNT; k++)
        stats_tensor(&s, (enum collective)k, true, 1, 1);
    page = s.page;
    strbuf_init(&text, 1 << 20);
    stats_page_text(&page, 1, &text);
    copy = strbuf_take(&text);
    for (char *p = strtok_r(copy, "\n", &save); p; p = strtok_r(NULL, "\n", &save)) {
        char kind[16], end[2];
        double v;

        if (strncmp(p, "# HELP ", 7) == 0) {
            assert_int_equal(sscanf(p, "# HELP %127s", metric), 1);
            continue;
        }
        if (p[0] == '#') {
            char name[128];

            assert_int_equal(sscanf(p, "# TYPE %127s %15s", name, kind), 2);
            assert_string_equal(name, metric);
            assert_true(!strcmp(kind, "counter") || !strcmp(kind, "gauge"));
            if (!strcmp(kind, "counter"))
                assert_string_equal(name + strlen(name) - 6, "_total");
            continue;
        }
        assert_int_equal(strncmp(p, metric, strlen(metric)), 0);
        p += strlen(metric);
        assert_int_equal(p[0], '{');
        assert_non_null(strchr(p, '}'));
        assert_int_equal(sscanf(strchr(p, '}'), "} %lf%1s", &v, end), 1);
    }
    mem_free(copy);
    stats_release(&s);
}

UNIT_TEST(document_is_generated_from_the_table)
{
    assert_generated("runtime/doc/metrics.md",
                     "<!-- metrics:", "<!-- end of metrics -->", stats_page_markdown);
}

/* --- the launcher's file --- */

UNIT_TEST(the_launcher_sees_what_is_counted)
{
    static struct stats s;
    AUTOFREE char *p = NULL;
    struct err e = ERR_INIT;
    size_t n;

    stats_init(&s, dir, 3, 8, 7, 0);
    assert_true(s.mapped_bytes > 0);
    stats_add(&s, STATS_BATCHES, 4);
    assert_int_equal(fd_read_file(path, 1 << 20, &p, &n, &e), 0);
    assert_int_equal(stats_page_check(p, n, &e), 0);
    {
        const struct stats_page *page = (const void *)p;

        assert_int_equal(page->rank, 3);
        assert_int_equal(page->size, 8);
        assert_int_equal(page->generation, 7);
        assert_int_equal(page->pid, getpid());
        assert_int_equal(stats_word(page, STATS_BATCHES), 4);
    }
    stats_release(&s);
    assert_int_equal(access(path, R_OK), 0); /* it outlives the rank */
}

UNIT_TEST(a_new_world_replaces_the_page)
{
    static struct stats old, s;
    AUTOFREE char *p = NULL;
    struct err e = ERR_INIT;
    size_t n;

    stats_init(&old, dir, 3, 8, 7, 0);
    stats_init(&s, dir, 3, 4, 8, 0);
    stats_add(&old, STATS_BATCHES, 100); /* still mapped, no longer seen */
    stats_add(&s, STATS_BATCHES, 1);
    assert_int_equal(fd_read_file(path, 1 << 20, &p, &n, &e), 0);
    assert_int_equal(stats_word((const void *)p, STATS_BATCHES), 1);
    stats_release(&old);
    stats_release(&s);
}

UNIT_TEST(a_bad_folder_costs_only_the_file)
{
    static struct stats s;

    log_set_level(LOG_ERROR);
    stats_init(&s, "/nonexistent/folder", 3, 8, 7, 0);
    log_set_level(LOG_WARN);
    assert_int_equal(s.mapped_bytes, 0);
    stats_add(&s, STATS_BATCHES, 4);
    assert_int_equal(stats_now(&s, 1).batches, 4);
    stats_release(&s);
}

UNIT_TEST(another_file_is_no_page)
{
    static struct stats s;
    struct err e = ERR_INIT;

    stats_init(&s, "", 3, 8, 7, 0);
    assert_int_equal(stats_page_check(s.page, sizeof(*s.page), &e), 0);
    assert_int_equal(stats_page_check(s.page, sizeof(*s.page) - 1, &e), -EBADMSG);
    s.page->version++;
    assert_int_equal(stats_page_check(s.page, sizeof(*s.page), &e), -EBADMSG);
    s.page->version--;
    s.page->n_words++; /* a later one with more counters */
    assert_int_equal(stats_page_check(s.page, sizeof(*s.page), &e), 0);
    s.page->n_words -= 2;
    assert_int_equal(stats_page_check(s.page, sizeof(*s.page), &e), -EBADMSG);
    s.page->magic++;
    assert_int_equal(stats_page_check(s.page, sizeof(*s.page), &e), -EBADMSG);
    assert_string_equal(e.text, "statistics: not a page of counters");
    stats_release(&s);
}

/* --- one writer, many readers --- */

static struct stats shared_stats;
static _Atomic int is_done;

static void *read_on(void *arg)
{
    uint64_t last = 0;

    (void)arg;
    while (!atomic_load(&is_done)) {
        struct hvd_stats v = stats_now(&shared_stats, 1);

        if (v.batches < last)
            return &shared_stats; /* a counter went back */
        last = v.batches;
    }
    return NULL;
}

UNIT_TEST(readers_need_no_lock)
{
    pthread_t t[2];
    void *said;

    stats_init(&shared_stats, "", 0, 1, 0, 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&t[i], NULL, read_on, NULL), 0);
    for (int i = 0; i < 200000; i++)
        stats_add(&shared_stats, STATS_BATCHES, 1);
    atomic_store(&is_done, 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(t[i], &said), 0);
        assert_null(said);
    }
    assert_int_equal(stats_now(&shared_stats, 1).batches, 200000);
    stats_release(&shared_stats);
}

UNIT_MAIN(make_dir, remove_dir)
