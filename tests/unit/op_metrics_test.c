/* SPDX-License-Identifier: Apache-2.0 */
/* The text of /metrics: numbers come out as they went in, under Prometheus' rules. */
#include "tests/unit/unit.h"

#include "operator/core/metrics.h"
#include "runtime/base/mem.h"

static void metrics_must_have(const struct strbuf *text, const char *line)
{
    const char *at = strstr(strbuf_str(text), line);

    if (!at || (at != strbuf_str(text) && at[-1] != '\n'))
        fail_msg("no line \"%s\" in:\n%s", line, strbuf_str(text));
}

UNIT_TEST(measurements_are_printed)
{
    static const char *const lines[] = {
        "hvd_operator_pods 3\n",
        "hvd_operator_pod_cache_bytes 3072\n",
        "hvd_operator_queue_wait_seconds_bucket{le=\"0.005\"} 1\n",
        "hvd_operator_queue_wait_seconds_bucket{le=\"0.01\"} 2\n",
        "hvd_operator_queue_wait_seconds_bucket{le=\"+Inf\"} 3\n",
        "hvd_operator_queue_wait_seconds_sum 4.009000\n",
        "hvd_operator_queue_wait_seconds_count 3\n",
        "hvd_operator_build_info{version=\"1.2.3\"} 1\n",
        "process_start_time_seconds 1767225600.250000\n",
        "process_cpu_seconds_total 1.500000\n",
        "process_resident_memory_bytes 4096\n",
        "process_open_fds 17\n",
        "process_max_fds 1024\n",
        "hvd_operator_asks_total{result=\"ok\"} 1\n",
        "hvd_operator_asks_total{result=\"refused\"} 1\n",
        "hvd_operator_ask_duration_seconds_bucket{le=\"0.005\"} 1\n",
        "hvd_operator_ask_duration_seconds_count 2\n",
        "hvd_operator_jobs_reporting 4\n",
        "hvd_operator_report_bytes 900\n",
        "hvd_operator_jobs_stalled 2\n",
        "hvd_operator_jobs_straggling 1\n",
        "hvd_operator_leader 1\n",
        "mpi_operator_is_leader 1\n",
    };
    struct operator_metrics m = {0};
    struct gauges g = {
        .pods = 3,
        .pod_bytes = 3072,
        .started_wall_us = 1767225600250000u,
        .version = "1.2.3",
        .is_leader = 1,
        .ask = {.reports = 4, .report_bytes = 900, .stalled = 2, .straggling = 1},
        .process = {
            .rss_bytes = 4096, .cpu_us = 1500000, .open_fds = 17, .max_fds = 1024}};
    CLEANUP(strbuf_release) struct strbuf text;

    metrics_ask(&m, ASK_OK, 2000000);
    metrics_ask(&m, ASK_REFUSED, 30000000);
    metrics_queue_wait(&m, 2000000);    /* 2 ms */
    metrics_queue_wait(&m, 7000000);    /* 7 ms */
    metrics_queue_wait(&m, 4000000000); /* 4 s: beyond the last bound */
    strbuf_init(&text, 1u << 20);
    metrics_render(&m, &g, &text);
    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++)
        metrics_must_have(&text, lines[i]);
}

/* Statuses with these numbers of restarts and replacements. */
static void metrics_note_restart(struct operator_metrics *m,
                                 const char *cause,
                                 int counted,
                                 int replacements)
{
    CLEANUP(arena_release) struct arena a;
    struct build b = {.arena = &a};
    struct node *now;

    arena_init(&a, 1u << 16);
    now = node_object(&b);
    node_set_str(&b, now, "state", "Restarting");
    node_set_int(&b, now, "restarts", counted);
    node_set_int(&b, now, "replacements", replacements);
    metrics_status(m, METRICS_HOROVODJOB, cause, NULL, now, 0);
}

UNIT_TEST(restarts_are_counted_by_reason)
{
    static const char *const lines[] = {
        "hvd_operator_job_restarts_total{reason=\"OOMKilled\"} 2\n",
        "hvd_operator_job_replacements_total{reason=\"Evicted\"} 1\n",
        "hvd_operator_job_restarts_total{reason=\"other\"} 2\n",
    };
    struct operator_metrics m = {0};
    struct gauges g = {.version = "1"};
    struct strbuf text;
    char many[24];

    metrics_note_restart(&m, "OOMKilled", 1, 0);
    metrics_note_restart(&m, "Evicted", 0, 1);
    metrics_note_restart(&m, "OOMKilled", 1, 0);
    metrics_note_restart(&m, "not a \"word\"", 1, 0);
    metrics_note_restart(&m, NULL, 1, 0);
    metrics_note_restart(&m, "NothingGrew", 0, 0);
    strbuf_init(&text, 1u << 20);
    metrics_render(&m, &g, &text);
    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++)
        metrics_must_have(&text, lines[i]);
    assert_null(strstr(strbuf_str(&text), "NothingGrew"));
    strbuf_release(&text);
    for (int i = 0; i < 100; i++) { /* the number of reasons is bounded */
        (void)snprintf(many, sizeof(many), "Reason%d", i);
        metrics_note_restart(&m, many, 1, 0);
    }
    assert_int_equal(m.n_restarts, METRICS_MAX_REASONS);
    assert_string_equal(m.restarts[METRICS_MAX_REASONS - 1].reason, "other");
}

static struct node *metrics_status_of(struct build *b, int queued, int training)
{
    struct node *now = node_object(b);
    struct node *goodput = node_child(b, now, "goodput", NODE_OBJECT);
    struct node *seconds = node_child(b, goodput, "seconds", NODE_OBJECT);
    struct node *gpus = node_child(b, goodput, "gpuSeconds", NODE_OBJECT);

    node_set_int(b, seconds, "queued", queued);
    node_set_int(b, seconds, "training", training);
    node_set_int(b, gpus, "training", 8 * (int64_t)training);
    return now;
}

UNIT_TEST(parts_of_all_jobs_are_summed_and_never_shrink)
{
    static const char *const lines[] = {
        "hvd_operator_job_seconds_total{kind=\"HorovodJob\",part=\"queued\"} 13\n",
        "hvd_operator_job_seconds_total{kind=\"HorovodJob\",part=\"training\"} 9\n",
        "hvd_operator_job_gpu_seconds_total{kind=\"HorovodJob\",part=\"training\"} "
        "72\n",
        "hvd_operator_job_seconds_total{kind=\"HorovodJob\",part=\"down\"} 0\n",
    };
    CLEANUP(arena_release) struct arena a;
    CLEANUP(strbuf_release) struct strbuf text;
    struct build b = {.arena = &a};
    struct operator_metrics m = {0};
    struct gauges g = {.version = "1"};
    struct node *first, *second, *third;

    arena_init(&a, 1u << 16);
    strbuf_init(&text, 1u << 20);
    first = metrics_status_of(&b, 10, 0);
    second = metrics_status_of(&b, 6, 9); /* four of these were pulling or training */
    third = metrics_status_of(&b, 7, 0);  /* another job */
    metrics_status(&m, METRICS_HOROVODJOB, NULL, NULL, first, 0);
    metrics_status(&m, METRICS_HOROVODJOB, NULL, first, second, 0);
    assert_int_equal(m.seconds[LEDGER_QUEUED].total, 10);
    metrics_status(&m, METRICS_HOROVODJOB, NULL, NULL, third, 0);
    assert_int_equal(m.seconds[LEDGER_QUEUED].total, 13); /* 6 + 7 */
    metrics_status(&m, METRICS_HOROVODJOB, NULL, third, third, 0);
    metrics_render(&m, &g, &text);
    for (size_t i = 0; i < ARRAY_LEN(lines); i++)
        metrics_must_have(&text, lines[i]);
}

/* Each family once, its samples right after its HELP and TYPE. */
UNIT_TEST(every_sample_belongs_to_the_family_above_it)
{
    struct operator_metrics m = {0};
    struct gauges g = {.version = "1"};
    char family[128] = "", seen[16384] = "\n";
    CLEANUP(strbuf_release) struct strbuf text;

    metrics_request(&m, "GET", 200, 1);
    strbuf_init(&text, 1u << 20);
    metrics_render(&m, &g, &text);
    for (const char *s = strbuf_str(&text); *s; s = strchr(s, '\n') + 1) {
        if (strncmp(s, "# HELP ", 7) == 0) {
            char entry[130];

            (void)snprintf(family, sizeof(family), "%.*s", (int)strcspn(s + 7, " "),
                           s + 7);
            (void)snprintf(entry, sizeof(entry), "\n%s\n", family);
            if (strstr(seen, entry))
                fail_msg("%s comes twice", family);
            strncat(seen, entry + 1, sizeof(seen) - strlen(seen) - 1);
        } else {
            const char *name = strncmp(s, "# TYPE ", 7) == 0 ? s + 7 : s;

            if (strncmp(name, family, strlen(family)) != 0)
                fail_msg("after the head of %s: %.80s", family, s);
        }
    }
}

UNIT_TEST(rows_of_a_job_are_those_that_its_report_has)
{
    struct live_report r;
    CLEANUP(strbuf_release) struct strbuf text;

    live_report_init(&r);
    strbuf_init(&text, 1u << 16);
    for (size_t i = 0; i < METRICS_JOB_ROWS; i++)
        metrics_render_job(i, "ns/a", &r, &text);
    assert_string_equal(strbuf_str(&text),
                        "hvd_job_stalled{namespace=\"ns\",job=\"a\"} 0\n");
    r.progress.step = 30;
    r.progress.total_steps = 40;
    r.rates.steps_per_s = 2.5;
    r.stall.since_wall_us = 1;
    for (size_t i = 0; i < METRICS_JOB_ROWS; i++) {
        metrics_render_job_head(i, &text);
        metrics_render_job(i, "ns/b", &r, &text);
    }
    metrics_must_have(&text, "# TYPE hvd_job_progress_ratio gauge\n");
    metrics_must_have(&text,
                      "hvd_job_progress_ratio{namespace=\"ns\",job=\"b\"} 0.75\n");
    metrics_must_have(&text,
                      "hvd_job_steps_per_second{namespace=\"ns\",job=\"b\"} 2.5\n");
    metrics_must_have(&text, "hvd_job_stalled{namespace=\"ns\",job=\"b\"} 1\n");
}

UNIT_MAIN(NULL, NULL)
