/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of the operator and their text form (Prometheus 0.0.4). One table gives
 * name, help and type; README.md has the same table and a test compares. Pure, one
 * thread. */
#ifndef OPERATOR_CORE_METRICS_H
#define OPERATOR_CORE_METRICS_H

#include <stdint.h>

#include "operator/core/state.h"
#include "runtime/base/strbuf.h"

enum api_result { API_2XX, API_4XX, API_409, API_429, API_5XX, API_NO_ANSWER };
#define API_RESULT_COUNT 6
enum api_verb { API_GET, API_POST, API_PUT, API_PATCH, API_DELETE, API_WATCH };
#define API_VERB_COUNT 6
#define SYNC_BUCKETS   9

struct metrics {
    uint64_t syncs_ok, syncs_retry;
    uint64_t sync_bucket[SYNC_BUCKETS]; /* not cumulative; the last is +Inf */
    uint64_t sync_ns_total;
    uint64_t requests[API_VERB_COUNT][API_RESULT_COUNT];
    uint64_t watch_events;
    uint64_t jobs_finished[2][STATE_COUNT]; /* by kind; SUCCEEDED and FAILED are used */
};
struct gauges {                    /* read at the moment of the scrape */
    uint64_t jobs[2][STATE_COUNT]; /* HorovodJobs, MPIJobs */
    uint64_t pods, queue_depth, watch_restarts, rss_bytes, uptime_s;
    uint64_t oldest_watch_ns; /* since the quieter watch was last heard */
    int is_synced, is_leader;
};

void metrics_sync(struct metrics *m, int is_ok, uint64_t took_ns);
void metrics_request(struct metrics *m, const char *method, int http);
void metrics_render(const struct metrics *m,
                    const struct gauges *g,
                    struct strbuf *out);

#endif
