/* SPDX-License-Identifier: Apache-2.0 */
/* The text of /metrics. The number of jobs has no bound, so no label holds the name of
 * a job. The exceptions need --job-metrics: mpi_operator_job_info, which mpi-operator
 * defines, and the rows of live reports. */
#include "operator/core/metrics.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "operator/core/timestamp.h"
#include "runtime/base/mem.h"

static const uint32_t sync_ms[HISTOGRAM_BUCKETS - 1] = {1,  5,   10,  25,
                                                        50, 100, 500, 2500};
static const uint32_t running_ms[HISTOGRAM_BUCKETS - 1] = {
    500, 1000, 5000, 15000, 60000, 300000, 1800000, 7200000};
static const char *const verb_names[] = {
    [API_GET] = "GET",     [API_POST] = "POST",     [API_PUT] = "PUT",
    [API_PATCH] = "PATCH", [API_DELETE] = "DELETE", [API_WATCH] = "WATCH",
};
static const char *const result_names[] = {
    [API_2XX] = "2xx", [API_4XX] = "4xx", [API_409] = "409",
    [API_429] = "429", [API_5XX] = "5xx", [API_NO_ANSWER] = "none",
};
_Static_assert(ARRAY_LEN(verb_names) == API_VERB_COUNT, "one name per verb");
_Static_assert(ARRAY_LEN(result_names) == API_RESULT_COUNT, "one name per result");

static void
histogram_add(struct histogram *h, const uint32_t *bounds_ms, uint64_t took_us)
{
    size_t i = 0;

    while (i < HISTOGRAM_BUCKETS - 1 && took_us > bounds_ms[i] * 1000ull)
        i++;
    h->bucket[i]++;
    h->sum_us += took_us;
}

void metrics_sync(struct operator_metrics *m, int is_ok, uint64_t took_ns)
{
    if (is_ok)
        m->syncs_ok++;
    else
        m->syncs_retry++;
    histogram_add(&m->sync, sync_ms, took_ns / 1000u);
}

void metrics_queue_wait(struct operator_metrics *m, uint64_t waited_ns)
{
    histogram_add(&m->queue_wait, sync_ms, waited_ns / 1000u);
}

static enum api_result result_of(int http)
{
    if (http == 409)
        return API_409;
    if (http == 429)
        return API_429;
    if (http >= 200 && http < 300)
        return API_2XX;
    if (http >= 400 && http < 500)
        return API_4XX;
    return http == 0 ? API_NO_ANSWER : API_5XX;
}

void metrics_request(struct operator_metrics *m,
                     const char *method,
                     int http,
                     uint64_t took_ns)
{
    if (strcmp(method, "WATCH") != 0)
        histogram_add(&m->request, sync_ms, took_ns / 1000u);
    for (size_t i = 0; i < API_VERB_COUNT; i++) {
        if (strcmp(verb_names[i], method) == 0)
            m->requests[i][result_of(http)]++;
    }
}

void metrics_ask(struct operator_metrics *m, enum ask_result r, uint64_t took_ns)
{
    m->asks[r]++;
    histogram_add(&m->ask, sync_ms, took_ns / 1000u);
}

static uint64_t
status_growth(const struct node *old, const struct node *now, const char *key)
{
    int64_t was = node_int(old, key, 0), is = node_int(now, key, 0);

    return is > was ? (uint64_t)(is - was) : 0;
}

static bool reason_is_word(const char *s)
{
    static const char in[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                             "0123456789_-";

    return s && *s && strlen(s) < METRICS_REASON_SIZE && s[strspn(s, in)] == '\0';
}

static struct restarts *restarts_of(struct operator_metrics *m, const char *cause)
{
    const char *reason = reason_is_word(cause) ? cause : "other";
    size_t i = 0;

    while (i < m->n_restarts && strcmp(m->restarts[i].reason, reason) != 0)
        i++;
    if (i < m->n_restarts)
        return &m->restarts[i];
    if (i == METRICS_MAX_REASONS)
        return &m->restarts[i - 1];
    if (i == METRICS_MAX_REASONS - 1)
        reason = "other";
    (void)snprintf(m->restarts[i].reason, METRICS_REASON_SIZE, "%s", reason);
    m->n_restarts++;
    return &m->restarts[i];
}

static void part_count(struct part_counter *c, int64_t was, int64_t is)
{
    uint64_t more = is > was ? (uint64_t)(is - was) : 0;
    uint64_t paid = more < c->too_much ? more : c->too_much;

    c->total += more - paid;
    c->too_much -= paid;
    if (was > is)
        c->too_much += (uint64_t)(was - is);
}

/* Pods that were seen late move seconds from one part to another. */
static void metrics_count_parts(struct operator_metrics *m,
                                const struct node *old,
                                const struct node *now)
{
    const struct node *was = node_get(old, "goodput"), *is = node_get(now, "goodput");

    for (int i = 0; is && i < LEDGER_PARTS; i++) {
        const char *name = ledger_part_name((enum ledger_part)i);

        part_count(&m->seconds[i], node_int(node_get(was, "seconds"), name, 0),
                   node_int(node_get(is, "seconds"), name, 0));
        part_count(&m->gpu_seconds[i], node_int(node_get(was, "gpuSeconds"), name, 0),
                   node_int(node_get(is, "gpuSeconds"), name, 0));
    }
}

void metrics_status(struct operator_metrics *m,
                    enum metrics_kind kind,
                    const char *cause,
                    const struct node *old,
                    const struct node *now,
                    uint64_t now_wall_s)
{
    enum job_state was = state_of_status(old), is = state_of_status(now);
    const char *start = node_str(now, "startTime");
    uint64_t counted = status_growth(old, now, "restarts");
    uint64_t replacements = status_growth(old, now, "replacements");
    uint64_t start_us = 0;

    metrics_count_parts(m, old, now);
    m->jobs_created[kind] += !old || !node_get(old, "conditions");
    if (state_is_final(is) && !state_is_final(was))
        m->jobs_finished[kind][is]++;
    if (is == STATE_RUNNING && was == STATE_PENDING && start
        && timestamp_parse_us(start, &start_us) == 0
        && start_us / 1000000u <= now_wall_s)
        histogram_add(&m->to_running, running_ms, now_wall_s * 1000000u - start_us);
    if (counted || replacements) {
        struct restarts *r = restarts_of(m, cause);

        r->counted += counted;
        r->replacements += replacements;
    }
}

static void metric_print_head(struct strbuf *out,
                              const char *name,
                              const char *type,
                              const char *help)
{
    strbuf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void
metric_print_gauge(struct strbuf *out, const char *name, const char *help, uint64_t v)
{
    metric_print_head(out, name, "gauge", help);
    strbuf_printf(out, "%s %" PRIu64 "\n", name, v);
}

static void
metric_print_counter(struct strbuf *out, const char *name, const char *help, uint64_t v)
{
    metric_print_head(out, name, "counter", help);
    strbuf_printf(out, "%s %" PRIu64 "\n", name, v);
}

static void metric_print_seconds(struct strbuf *out,
                                 const char *name,
                                 const char *type,
                                 const char *help,
                                 uint64_t us)
{
    metric_print_head(out, name, type, help);
    strbuf_printf(out, "%s %.6f\n", name, (double)us / 1e6);
}

static void render_histogram(const struct histogram *h,
                             const uint32_t *bounds_ms,
                             const char *name,
                             const char *help,
                             struct strbuf *out)
{
    uint64_t sum = 0;

    metric_print_head(out, name, "histogram", help);
    for (size_t i = 0; i < HISTOGRAM_BUCKETS - 1; i++) {
        sum += h->bucket[i];
        strbuf_printf(out, "%s_bucket{le=\"%g\"} %" PRIu64 "\n", name,
                      (double)bounds_ms[i] / 1e3, sum);
    }
    sum += h->bucket[HISTOGRAM_BUCKETS - 1];
    strbuf_printf(out, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, sum);
    strbuf_printf(out, "%s_sum %.6f\n", name, (double)h->sum_us / 1e6);
    strbuf_printf(out, "%s_count %" PRIu64 "\n", name, sum);
}

static void render_syncs(const struct operator_metrics *m, struct strbuf *out)
{
    metric_print_head(out, "hvd_operator_sync_total", "counter",
                      "syncs of a job by result");
    strbuf_printf(out, "hvd_operator_sync_total{result=\"ok\"} %" PRIu64 "\n",
                  m->syncs_ok);
    strbuf_printf(out, "hvd_operator_sync_total{result=\"retry\"} %" PRIu64 "\n",
                  m->syncs_retry);
    render_histogram(&m->sync, sync_ms, "hvd_operator_sync_duration_seconds",
                     "from the start of a sync until its last answer", out);
}

static void render_requests(const struct operator_metrics *m, struct strbuf *out)
{
    metric_print_head(out, "hvd_operator_api_requests_total", "counter",
                      "requests to the API server by method and HTTP status");
    for (size_t v = 0; v < API_VERB_COUNT; v++) {
        for (size_t r = 0; r < API_RESULT_COUNT; r++) {
            if (m->requests[v][r])
                strbuf_printf(out,
                              "hvd_operator_api_requests_total{method=\"%s\",code="
                              "\"%s\"} %" PRIu64 "\n",
                              verb_names[v], result_names[r], m->requests[v][r]);
        }
    }
}

static const char *const kinds[METRICS_KIND_COUNT] = {
    [METRICS_HOROVODJOB] = "HorovodJob",
    [METRICS_MPIJOB] = "MPIJob",
};

static void render_jobs(const struct operator_metrics *m,
                        const struct gauges *g,
                        struct strbuf *out)
{
    metric_print_head(out, "hvd_operator_jobs", "gauge", "jobs by kind and state");
    for (size_t k = 0; k < METRICS_KIND_COUNT; k++) {
        for (int i = 0; i < STATE_COUNT; i++)
            strbuf_printf(out,
                          "hvd_operator_jobs{kind=\"%s\",state=\"%s\"} %" PRIu64 "\n",
                          kinds[k], state_name((enum job_state)i), g->jobs[k][i]);
    }
    metric_print_head(out, "hvd_operator_jobs_created_total", "counter",
                      "jobs that this process saw first");
    for (size_t k = 0; k < METRICS_KIND_COUNT; k++)
        strbuf_printf(out, "hvd_operator_jobs_created_total{kind=\"%s\"} %" PRIu64 "\n",
                      kinds[k], m->jobs_created[k]);
    metric_print_head(out, "hvd_operator_jobs_finished_total", "counter",
                      "jobs that this process saw finish");
    for (size_t k = 0; k < METRICS_KIND_COUNT; k++) {
        for (int i = STATE_SUCCEEDED; i <= STATE_FAILED; i++)
            strbuf_printf(out,
                          "hvd_operator_jobs_finished_total{kind=\"%s\",state=\"%s\"} "
                          "%" PRIu64 "\n",
                          kinds[k], state_name((enum job_state)i),
                          m->jobs_finished[k][i]);
    }
    metric_print_head(out, "hvd_operator_job_restarts_total", "counter",
                      "restarts of HorovodJobs that count against backoffLimit");
    for (size_t i = 0; i < m->n_restarts; i++)
        strbuf_printf(out,
                      "hvd_operator_job_restarts_total{reason=\"%s\"} %" PRIu64 "\n",
                      m->restarts[i].reason, m->restarts[i].counted);
    metric_print_head(out, "hvd_operator_job_replacements_total", "counter",
                      "restarts of HorovodJobs that do not count");
    for (size_t i = 0; i < m->n_restarts; i++)
        strbuf_printf(
            out, "hvd_operator_job_replacements_total{reason=\"%s\"} %" PRIu64 "\n",
            m->restarts[i].reason, m->restarts[i].replacements);
    render_histogram(&m->to_running, running_ms,
                     "hvd_operator_job_time_to_running_seconds",
                     "from a job's startTime until it ran", out);
}

static void render_parts(const struct part_counter v[LEDGER_PARTS],
                         const char *name,
                         const char *help,
                         struct strbuf *out)
{
    metric_print_head(out, name, "counter", help);
    for (int i = 0; i < LEDGER_PARTS; i++)
        strbuf_printf(out, "%s{kind=\"%s\",part=\"%s\"} %" PRIu64 "\n", name,
                      kinds[METRICS_HOROVODJOB], ledger_part_name((enum ledger_part)i),
                      v[i].total);
}

static void render_goodput(const struct operator_metrics *m, struct strbuf *out)
{
    render_parts(m->seconds, "hvd_operator_job_seconds_total",
                 "time of jobs by part of .status.goodput", out);
    render_parts(m->gpu_seconds, "hvd_operator_job_gpu_seconds_total",
                 "the same times the GPUs of bound pods", out);
}

static void render_queue(const struct operator_metrics *m,
                         const struct gauges *g,
                         struct strbuf *out)
{
    metric_print_gauge(out, "hvd_operator_queue_depth", "jobs that wait for a sync",
                       g->queue_depth);
    metric_print_counter(out, "hvd_operator_queue_adds_total",
                         "times that a job was queued for a sync", m->queue_adds);
    metric_print_counter(out, "hvd_operator_queue_retries_total",
                         "times that a job was put back with a delay",
                         m->queue_retries);
    render_histogram(&m->queue_wait, sync_ms, "hvd_operator_queue_wait_seconds",
                     "from when a sync was due until it started", out);
}

static void render_watches(const struct operator_metrics *m,
                           const struct gauges *g,
                           struct strbuf *out)
{
    metric_print_counter(out, "hvd_operator_watch_events_total",
                         "events received by watches", m->watch_events);
    metric_print_counter(out, "hvd_operator_watch_restarts_total",
                         "lists and watches started again after the first list",
                         g->watch_restarts);
    metric_print_gauge(out, "hvd_operator_watch_silence_seconds",
                       "since the last event of the watch that is silent longest",
                       g->oldest_watch_ns / 1000000000u);
}

static void render_asks(const struct operator_metrics *m,
                        const struct gauges *g,
                        struct strbuf *out)
{
    metric_print_head(out, "hvd_operator_asks_total", "counter",
                      "questions to agents for the report of their job, by result");
    for (size_t i = 0; i < ASK_RESULTS; i++)
        strbuf_printf(out, "hvd_operator_asks_total{result=\"%s\"} %" PRIu64 "\n",
                      ask_result_name((enum ask_result)i), m->asks[i]);
    render_histogram(&m->ask, sync_ms, "hvd_operator_ask_duration_seconds",
                     "from a question to its answer or failure", out);
    metric_print_gauge(out, "hvd_operator_jobs_reporting",
                       "jobs whose report is known and not older than three intervals",
                       g->ask.reports);
    metric_print_gauge(out, "hvd_operator_report_bytes", "memory of these reports",
                       g->ask.report_bytes);
    metric_print_gauge(out, "hvd_operator_jobs_stalled",
                       "of these, jobs in which a collective waits too long",
                       g->ask.stalled);
    metric_print_gauge(out, "hvd_operator_jobs_straggling",
                       "of these, jobs that a slow rank delays", g->ask.straggling);
}

static void render_webhook(const struct operator_metrics *m,
                           const struct gauges *g,
                           struct strbuf *out)
{
    metric_print_head(out, "hvd_operator_webhook_messages_total", "counter",
                      "messages of the webhook by how they ended");
    for (int i = 0; i < WEBHOOK_ENDS; i++)
        strbuf_printf(
            out, "hvd_operator_webhook_messages_total{result=\"%s\"} %" PRIu64 "\n",
            webhook_end_name((enum webhook_end)i), m->webhook_ends[i]);
    metric_print_counter(out, "hvd_operator_webhook_failed_attempts_total",
                         "attempts to send a message without success",
                         m->webhook_failures);
    metric_print_gauge(out, "hvd_operator_webhook_queue", "messages not yet delivered",
                       g->webhook_depth);
}

static void render_page(const struct page_figures *p, struct strbuf *out)
{
    metric_print_gauge(out, "hvd_operator_page_connections",
                       "connections of viewers of the status page", p->connections);
    metric_print_gauge(out, "hvd_operator_page_streams",
                       "of these, streams that receive changes", p->streams);
    metric_print_counter(out, "hvd_operator_page_reviews_total",
                         "reviews of viewers' tokens and rights by the API server",
                         p->reviews);
    metric_print_counter(out, "hvd_operator_page_reviews_saved_total",
                         "checks of viewers that needed no review", p->kept);
}

/* With the standard names of Prometheus exporters where there is one. */
static void render_process(const struct gauges *g, struct strbuf *out)
{
    metric_print_head(out, "hvd_operator_build_info", "gauge",
                      "1, with the version as a label");
    strbuf_printf(out, "hvd_operator_build_info{version=\"%s\"} 1\n", g->version);
    metric_print_gauge(out, "hvd_operator_uptime_seconds", "since this process started",
                       g->uptime_s);
    metric_print_seconds(out, "process_start_time_seconds", "gauge",
                         "start, since the epoch", g->started_wall_us);
    metric_print_seconds(out, "process_cpu_seconds_total", "counter", "processor time",
                         g->process.cpu_us);
    metric_print_gauge(out, "process_resident_memory_bytes", "resident memory",
                       g->process.rss_bytes);
    metric_print_gauge(out, "process_open_fds", "open file descriptors",
                       g->process.open_fds);
    metric_print_gauge(out, "process_max_fds", "limit of those", g->process.max_fds);
}

/* For dashboards and alerts of mpi-operator. */
static void render_aliases(const struct operator_metrics *m,
                           const struct gauges *g,
                           struct strbuf *out)
{
    const uint64_t *finished = m->jobs_finished[METRICS_MPIJOB];

    metric_print_counter(out, "mpi_operator_jobs_created_total",
                         "MPIJobs that were seen first",
                         m->jobs_created[METRICS_MPIJOB]);
    metric_print_counter(out, "mpi_operator_jobs_successful_total",
                         "MPIJobs that succeeded", finished[STATE_SUCCEEDED]);
    metric_print_counter(out, "mpi_operator_jobs_failed_total", "MPIJobs that failed",
                         finished[STATE_FAILED]);
    metric_print_gauge(out, "mpi_operator_is_leader", "1 while this process may act",
                       (uint64_t)(g->is_leader != 0));
}

void metrics_render(const struct operator_metrics *m,
                    const struct gauges *g,
                    struct strbuf *out)
{
    render_jobs(m, g, out);
    render_goodput(m, out);
    metric_print_gauge(out, "hvd_operator_pods", "pods of jobs in the cache", g->pods);
    metric_print_gauge(out, "hvd_operator_pod_cache_bytes", "memory that those take",
                       g->pod_bytes);
    render_syncs(m, out);
    render_queue(m, g, out);
    render_requests(m, out);
    render_histogram(&m->request, sync_ms, "hvd_operator_api_request_duration_seconds",
                     "from sending a request to its answer, without watches", out);
    render_watches(m, g, out);
    render_asks(m, g, out);
    render_webhook(m, g, out);
    render_page(&m->page, out);
    metric_print_gauge(out, "hvd_operator_synced", "1 when all caches are filled",
                       (uint64_t)(g->is_synced != 0));
    metric_print_gauge(out, "hvd_operator_leader", "1 while this process may act",
                       (uint64_t)(g->is_leader != 0));
    metric_print_gauge(out, "hvd_operator_mpi_operator_alive",
                       "1 while mpi-operator renews its Lease: both act on MPIJobs",
                       (uint64_t)(g->is_rival_alive != 0));
    render_process(g, out);
    render_aliases(m, g, out);
}

void metrics_render_infos_head(struct strbuf *out)
{
    metric_print_head(out, "mpi_operator_job_info", "gauge",
                      "MPIJobs by launcher, as mpi-operator");
}

void metrics_render_info(const char *ns, const char *job, struct strbuf *out)
{
    strbuf_printf(
        out, "mpi_operator_job_info{launcher=\"%s-launcher\",namespace=\"%s\"} 1\n",
        job, ns);
}

/* --- live reports ----------------------------------------------------------------- */

static double job_stalled(const struct live_report *r)
{
    return r->stall.since_wall_us > 0;
}

static double job_steps_per_s(const struct live_report *r)
{
    return r->rates.steps_per_s;
}

static double job_progress(const struct live_report *r)
{
    const struct live_progress *p = &r->progress;

    if (p->step < 0 || p->total_steps <= 0)
        return -1;
    return p->step >= p->total_steps ? 1 : (double)p->step / (double)p->total_steps;
}

static const struct job_row {
    const char *name, *help;
    double (*value)(const struct live_report *r); /* negative: unknown */
} job_rows[] = {
    {"hvd_job_progress_ratio", "steps done, of all, 0 to 1", job_progress},
    {"hvd_job_steps_per_second", "steps per second in the last minute",
     job_steps_per_s},
    {"hvd_job_stalled", "1 while a collective waits too long", job_stalled},
};
_Static_assert(ARRAY_LEN(job_rows) == METRICS_JOB_ROWS, "as the header says");

void metrics_render_job_head(size_t row, struct strbuf *out)
{
    metric_print_head(out, job_rows[row].name, "gauge", job_rows[row].help);
}

void metrics_render_job(size_t row,
                        const char *key,
                        const struct live_report *r,
                        struct strbuf *out)
{
    double v = job_rows[row].value(r);
    size_t n = strcspn(key, "/");

    if (v >= 0)
        strbuf_printf(out, "%s{namespace=\"%.*s\",job=\"%s\"} %.6g\n",
                      job_rows[row].name, (int)n, key, key + n + (key[n] == '/'), v);
}
