/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of the operator and their text form (Prometheus 0.0.4). A test compares the
 * names with the table in operator/reference/monitoring.md. Pure, one thread. */
#ifndef OPERATOR_CORE_METRICS_H
#define OPERATOR_CORE_METRICS_H

#include <stddef.h>
#include <stdint.h>

#include "operator/core/ask_plan.h"
#include "operator/core/ledger.h"
#include "operator/core/state.h"
#include "operator/core/webhook_plan.h"
#include "runtime/base/strbuf.h"

enum api_result { API_2XX, API_4XX, API_409, API_429, API_5XX, API_NO_ANSWER };
#define API_RESULT_COUNT 6
enum api_verb { API_GET, API_POST, API_PUT, API_PATCH, API_DELETE, API_WATCH };
#define API_VERB_COUNT 6
enum metrics_kind { METRICS_HOROVODJOB, METRICS_MPIJOB };
#define METRICS_KIND_COUNT 2

#define HISTOGRAM_BUCKETS  9
struct histogram {
    uint64_t bucket[HISTOGRAM_BUCKETS]; /* not cumulative; the last is +Inf */
    uint64_t sum_us;
};

/* Reasons of restarts include those of Kubernetes, so this limits their number. */
#define METRICS_MAX_REASONS 32
#define METRICS_REASON_SIZE 64

struct part_counter { /* a correction of parts takes from what is counted next */
    uint64_t total, too_much;
};

struct operator_metrics { /* zeroed at the start */
    uint64_t syncs_ok, syncs_retry;
    struct histogram sync, request, to_running, queue_wait;
    uint64_t requests[API_VERB_COUNT][API_RESULT_COUNT];
    uint64_t watch_events;
    uint64_t asks[ASK_RESULTS]; /* ask.h */
    struct histogram ask;
    uint64_t queue_adds, queue_retries;
    uint64_t jobs_created[METRICS_KIND_COUNT];
    uint64_t jobs_finished[METRICS_KIND_COUNT][STATE_COUNT]; /* SUCCEEDED, FAILED */
    struct restarts {                                        /* HorovodJobs only */
        char reason[METRICS_REASON_SIZE];
        uint64_t counted, replacements; /* counts towards backoffLimit; does not */
    } restarts[METRICS_MAX_REASONS];    /* the last one counts all further reasons */
    size_t n_restarts;
    /* Of HorovodJobs, by enum ledger_part. */
    struct part_counter seconds[LEDGER_PARTS], gpu_seconds[LEDGER_PARTS];
    uint64_t webhook_ends[WEBHOOK_ENDS], webhook_failures;
    struct page_figures { /* of the status page; counts since the start */
        uint64_t connections, streams, reviews, kept;
    } page;
};
struct ask_gauges { /* of jobs whose report is known */
    uint64_t reports, report_bytes, stalled, straggling;
};
struct process_facts {
    uint64_t rss_bytes, cpu_us, open_fds, max_fds;
};
struct gauges { /* values at the time of the scrape */
    uint64_t jobs[METRICS_KIND_COUNT][STATE_COUNT];
    uint64_t pods, pod_bytes, queue_depth, watch_restarts, uptime_s, webhook_depth;
    uint64_t
        oldest_watch_ns; /* time without events on the watch that is silent longest */
    uint64_t started_wall_us;
    struct process_facts process;
    struct ask_gauges ask;
    const char *version;
    int is_synced, is_leader, is_rival_alive;
};

void metrics_sync(struct operator_metrics *m, int is_ok, uint64_t took_ns);
void metrics_queue_wait(struct operator_metrics *m, uint64_t waited_ns);
void metrics_request(struct operator_metrics *m,
                     const char *method,
                     int http,
                     uint64_t took_ns);
/* A job was asked for its report. */
void metrics_ask(struct operator_metrics *m, enum ask_result r, uint64_t took_ns);
/* A status was written. old: the stored one or NULL. cause: the reason of a restart
 * that starts now; may be NULL. */
void metrics_status(struct operator_metrics *m,
                    enum metrics_kind kind,
                    const char *cause,
                    const struct node *old,
                    const struct node *now,
                    uint64_t now_wall_s);
/* All metrics but those of single jobs, which the caller adds: mpi_operator_job_info with
 * metrics_render_info after metrics_render_infos_head, and for each of METRICS_JOB_ROWS
 * metrics_render_job for all jobs after metrics_render_job_head. */
void metrics_render(const struct operator_metrics *m,
                    const struct gauges *g,
                    struct strbuf *out);
void metrics_render_infos_head(struct strbuf *out);
void metrics_render_info(const char *ns, const char *job, struct strbuf *out);
#define METRICS_JOB_ROWS 3
void metrics_render_job_head(size_t row, struct strbuf *out);
/* key: "namespace/name". Nothing, if the report does not contain the value. */
void metrics_render_job(size_t row,
                        const char *key,
                        const struct live_report *r,
                        struct strbuf *out);

#endif
