/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of the report. Called by the hub, the operator and readers. */
#include "runtime/live/live_report.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/live/live_fields.h"
#include "runtime/live/live_progress.h"

#define MAGIC "HVL1"

const char *live_state_name(enum live_state s)
{
    switch (s) {
    case LIVE_MEETING:
        return "Meeting";
    case LIVE_STARTING:
        return "Starting";
    case LIVE_TRAINING:
        return "Training";
    case LIVE_STALLED:
        return "Stalled";
    case LIVE_ENDING:
        return "Ending";
    }
    return "Unknown";
}

const char *live_cause_name(enum live_cause c)
{
    switch (c) {
    case LIVE_CAUSE_UNKNOWN:
        return "Unknown";
    case LIVE_CAUSE_STOPPED:
        return "Stopped";
    case LIVE_CAUSE_SWAPPING:
        return "Swapping";
    case LIVE_CAUSE_DEADLOCK:
        return "Deadlock";
    case LIVE_CAUSE_LOCK:
        return "Lock";
    case LIVE_CAUSE_LOOP:
        return "Loop";
    case LIVE_CAUSE_BRANCH:
        return "OutOfStep";
    case LIVE_CAUSE_STORAGE:
        return "Storage";
    case LIVE_CAUSE_BUSY:
        return "Busy";
    case LIVE_CAUSE_SLEEPING:
        return "Sleeping";
    case LIVE_CAUSE_ABSENT:
        return "Absent";
    }
    return "Unknown";
}

#define AT(type, field)   offsetof(struct type, field)
#define SIZE(type, field) sizeof(((struct type *)0)->field)

static const struct live_field job_fields[] = {
    {"time", LIVE_TIME, AT(live_report, at_wall_us), 0, 0},
    {"started", LIVE_TIME, AT(live_report, run_wall_us), 0, 0},
    {"state", LIVE_STATE, AT(live_report, state), 0, 0},
    {"generation", LIVE_U32, AT(live_report, generation), 0, 0},
    {"ranks", LIVE_U32, AT(live_report, size), 0, 0},
    {"slots", LIVE_U32, AT(live_report, slots), 0, 0},
    {"workers", LIVE_U32, AT(live_report, n_workers), 0, 0},
    {"workersPresent", LIVE_U32, AT(live_report, n_present), 0, 0},
    {"planSteps", LIVE_U64, AT(live_report, n_steps), 0, 0},
    {"askAgainMilliseconds", LIVE_I64, AT(live_report, again_ms), 0, 0},
};
static const struct live_field times_fields[] = {
    {"meeting", LIVE_MS, AT(live_times, meeting_ms), 0, 0},
    {"starting", LIVE_MS, AT(live_times, starting_ms), 0, 0},
    {"training", LIVE_MS, AT(live_times, training_ms), 0, 0},
    {"stalled", LIVE_MS, AT(live_times, stalled_ms), 0, 0},
};
static const struct live_field rates_fields[] = {
    {"stepsPerSecond", LIVE_F64, AT(live_rates, steps_per_s), 0, 0},
    {"busBytesPerSecond", LIVE_F64, AT(live_rates, bus_bytes_per_s), 0, 0},
    {"exposedCommunication", LIVE_F64, AT(live_rates, blocked_share), 0, 0},
};
static const struct live_field stall_fields[] = {
    {"since", LIVE_TIME, AT(live_stall, since_wall_us), 0, 0},
    {"reported", LIVE_TIME, AT(live_stall, seen_wall_us), 0, 0},
    {"tensor", LIVE_TEXT, AT(live_stall, tensor), SIZE(live_stall, tensor), 0},
    {"operation", LIVE_TEXT, AT(live_stall, op), SIZE(live_stall, op), 0},
    {"missingRanks", LIVE_RANKS, AT(live_stall, missing), 0, AT(live_stall, n_missing)},
    {"rank", LIVE_I32, AT(live_stall, rank), 0, 0},
    {"host", LIVE_TEXT, AT(live_stall, host), SIZE(live_stall, host), 0},
    {"cause", LIVE_CAUSE, AT(live_stall, cause), 0, 0},
    {"message", LIVE_TEXT, AT(live_stall, text), SIZE(live_stall, text), 0},
    {"hasStacks", LIVE_BOOL, AT(live_stall, has_stacks), 0, 0},
};
static const struct live_field straggler_fields[] = {
    {"rank", LIVE_I32, AT(live_straggler, rank), 0, 0},
    {"host", LIVE_TEXT, AT(live_straggler, host), SIZE(live_straggler, host), 0},
    {"worker", LIVE_U32, AT(live_straggler, worker), 0, 0},
    {"secondsPerStep", LIVE_F64, AT(live_straggler, cost_s), 0, 0},
    {"shareOfStep", LIVE_F64, AT(live_straggler, share), 0, 0},
    {"since", LIVE_TIME, AT(live_straggler, since_wall_us), 0, 0},
    {"isWholeWorker", LIVE_BOOL, AT(live_straggler, is_worker), 0, 0},
};
static const struct live_field elastic_fields[] = {
    {"minRanks", LIVE_U32, AT(live_elastic, min_ranks), 0, 0},
    {"maxRanks", LIVE_U32, AT(live_elastic, max_ranks), 0, 0},
    {"ready", LIVE_U32, AT(live_elastic, n_ready), 0, 0},
    {"resets", LIVE_U32, AT(live_elastic, n_resets), 0, 0},
    {"slotsExcluded", LIVE_U32, AT(live_elastic, n_excluded), 0, 0},
    {"excludedSeconds", LIVE_MS, AT(live_elastic, excluded_ms), 0, 0},
    {"waitsFor", LIVE_TEXT, AT(live_elastic, waits), SIZE(live_elastic, waits), 0},
    {"lastFailure", LIVE_TEXT, AT(live_elastic, failure), SIZE(live_elastic, failure),
     0},
};

static bool stall_is_there(const void *section)
{
    return ((const struct live_stall *)section)->since_wall_us > 0;
}

static bool straggler_is_there(const void *section)
{
    return ((const struct live_straggler *)section)->rank >= 0;
}

static bool elastic_is_there(const void *section)
{
    return ((const struct live_elastic *)section)->max_ranks > 0;
}

/* Ids are never used for something else. */
static const struct live_section sections[] = {
    {1, NULL, 0, job_fields, ARRAY_LEN(job_fields), NULL},
    {2, "seconds", AT(live_report, times), times_fields, ARRAY_LEN(times_fields), NULL},
    {3, "rates", AT(live_report, rates), rates_fields, ARRAY_LEN(rates_fields), NULL},
    {4, "progress", AT(live_report, progress), live_progress_fields,
     LIVE_PROGRESS_FIELDS, NULL},
    {5, "stall", AT(live_report, stall), stall_fields, ARRAY_LEN(stall_fields),
     stall_is_there},
    {6, "straggler", AT(live_report, straggler), straggler_fields,
     ARRAY_LEN(straggler_fields), straggler_is_there},
    {7, "elastic", AT(live_report, elastic), elastic_fields, ARRAY_LEN(elastic_fields),
     elastic_is_there},
};

void live_report_init(struct live_report *r)
{
    memset(r, 0, sizeof(*r));
    live_progress_init(&r->progress);
    r->rates = (struct live_rates){-1, -1, -1};
    r->again_ms = -1;
    r->stall.rank = -1;
    r->straggler.rank = -1;
}

void live_report_pack(const struct live_report *r, struct strbuf *out)
{
    strbuf_puts(out, MAGIC);
    live_sections_pack(sections, ARRAY_LEN(sections), r, out);
}

int live_report_unpack(const void *p,
                       size_t n,
                       struct live_report *ret,
                       struct err *err)
{
    AUTOFREE struct live_report *r = mem_alloc(sizeof(*r));
    int rc;

    if (!r)
        return err_set(err, -ENOMEM, "out of memory for the report");
    if (n < strlen(MAGIC) || memcmp(p, MAGIC, strlen(MAGIC)) != 0)
        return err_set(err, -EPROTO, "no live report");
    live_report_init(r);
    rc = live_sections_unpack(sections, ARRAY_LEN(sections),
                              (const char *)p + strlen(MAGIC), n - strlen(MAGIC), r,
                              "live report", err);
    if (rc == 0)
        *ret = *r;
    return rc;
}

void live_report_json(const struct live_report *r, struct strbuf *out)
{
    live_sections_json(sections, ARRAY_LEN(sections), r, out);
}
