/* SPDX-License-Identifier: Apache-2.0 */
/* The text of /metrics. No label has the name of a job: their number has no bound. */
#include "operator/core/metrics.h"

#include <inttypes.h>
#include <string.h>

#include "runtime/base/mem.h"

static const uint64_t bucket_ms[SYNC_BUCKETS - 1] = {1, 5, 10, 25, 50, 100, 500, 2500};
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

void metrics_sync(struct metrics *m, int is_ok, uint64_t took_ns)
{
    size_t i = 0;

    if (is_ok)
        m->syncs_ok++;
    else
        m->syncs_retry++;
    while (i < SYNC_BUCKETS - 1 && took_ns > bucket_ms[i] * 1000000u)
        i++;
    m->sync_bucket[i]++;
    m->sync_ns_total += took_ns;
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

void metrics_request(struct metrics *m, const char *method, int http)
{
    for (size_t i = 0; i < API_VERB_COUNT; i++) {
        if (strcmp(verb_names[i], method) == 0)
            m->requests[i][result_of(http)]++;
    }
}

static void
head(struct strbuf *out, const char *name, const char *type, const char *help)
{
    strbuf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void gauge(struct strbuf *out, const char *name, const char *help, uint64_t v)
{
    head(out, name, "gauge", help);
    strbuf_printf(out, "%s %" PRIu64 "\n", name, v);
}

static void counter(struct strbuf *out, const char *name, const char *help, uint64_t v)
{
    head(out, name, "counter", help);
    strbuf_printf(out, "%s %" PRIu64 "\n", name, v);
}

static void render_syncs(const struct metrics *m, struct strbuf *out)
{
    uint64_t sum = 0;

    head(out, "hvd_operator_sync_total", "counter", "syncs of a job by result");
    strbuf_printf(out, "hvd_operator_sync_total{result=\"ok\"} %" PRIu64 "\n",
                  m->syncs_ok);
    strbuf_printf(out, "hvd_operator_sync_total{result=\"retry\"} %" PRIu64 "\n",
                  m->syncs_retry);
    head(out, "hvd_operator_sync_duration_seconds", "histogram",
         "from the start of a sync until its last answer");
    for (size_t i = 0; i < SYNC_BUCKETS; i++) {
        sum += m->sync_bucket[i];
        if (i < SYNC_BUCKETS - 1)
            strbuf_printf(
                out,
                "hvd_operator_sync_duration_seconds_bucket{le=\"%g\"} %" PRIu64 "\n",
                (double)bucket_ms[i] / 1e3, sum);
    }
    strbuf_printf(
        out, "hvd_operator_sync_duration_seconds_bucket{le=\"+Inf\"} %" PRIu64 "\n",
        sum);
    strbuf_printf(out, "hvd_operator_sync_duration_seconds_sum %.6f\n",
                  (double)m->sync_ns_total / 1e9);
    strbuf_printf(out, "hvd_operator_sync_duration_seconds_count %" PRIu64 "\n", sum);
}

static void render_requests(const struct metrics *m, struct strbuf *out)
{
    head(out, "hvd_operator_api_requests_total", "counter",
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

static void
render_jobs(const struct metrics *m, const struct gauges *g, struct strbuf *out)
{
    static const char *const kinds[] = {"HorovodJob", "MPIJob"};

    head(out, "hvd_operator_jobs", "gauge", "jobs by kind and state");
    for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
        for (int i = 0; i < STATE_COUNT; i++)
            strbuf_printf(out,
                          "hvd_operator_jobs{kind=\"%s\",state=\"%s\"} %" PRIu64 "\n",
                          kinds[k], state_name((enum job_state)i), g->jobs[k][i]);
    }
    head(out, "hvd_operator_jobs_finished_total", "counter",
         "jobs that this process saw finish");
    for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
        for (int i = STATE_SUCCEEDED; i <= STATE_FAILED; i++)
            strbuf_printf(out,
                          "hvd_operator_jobs_finished_total{kind=\"%s\",state=\"%s\"} "
                          "%" PRIu64 "\n",
                          kinds[k], state_name((enum job_state)i),
                          m->jobs_finished[k][i]);
    }
}

void metrics_render(const struct metrics *m, const struct gauges *g, struct strbuf *out)
{
    render_jobs(m, g, out);
    gauge(out, "hvd_operator_pods", "worker pods in the cache", g->pods);
    render_syncs(m, out);
    gauge(out, "hvd_operator_queue_depth", "jobs that wait for a sync", g->queue_depth);
    render_requests(m, out);
    counter(out, "hvd_operator_watch_events_total", "events received by watches",
            m->watch_events);
    counter(out, "hvd_operator_watch_restarts_total",
            "lists and watches begun again after the first", g->watch_restarts);
    gauge(out, "hvd_operator_watch_silence_seconds",
          "since the quieter of the two watches was last heard",
          g->oldest_watch_ns / 1000000000u);
    gauge(out, "hvd_operator_synced", "1 when both caches are filled",
          (uint64_t)(g->is_synced != 0));
    gauge(out, "hvd_operator_leader", "1 while this process may act",
          (uint64_t)(g->is_leader != 0));
    gauge(out, "mpi_operator_is_leader", "the same, under mpi-operator's name",
          (uint64_t)(g->is_leader != 0));
    gauge(out, "hvd_operator_uptime_seconds", "since this process started",
          g->uptime_s);
    gauge(out, "process_resident_memory_bytes", "resident memory", g->rss_bytes);
}
