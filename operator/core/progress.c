/* SPDX-License-Identifier: Apache-2.0 */
/* Report -> status.
 *
 *   counts        as reported
 *   rates         three significant digits; exposedCommunication in hundredths
 *   eta           rounded to 10 s in the last ten minutes, to a minute in the last two
 *                 hours, to ten minutes in the last day, else to an hour. The stored one
 *                 stays until the new one differs by more than that
 *   straggler     one significant digit: its cost changes with each report
 *   texts         of the job's own program: what is not UTF-8, and control characters,
 *                 become "?", since the API server would refuse the whole status
 *
 * No text contains an elapsed time, because it must not change from sync to sync. Called by
 * hvd_live.c (status) and ask.c (digests). */
#include "operator/core/progress.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operator/core/timestamp.h"
#include "operator/doc/json.h"
#include "runtime/base/mem.h"
#include "runtime/base/utf8.h"

#define ETA_MAX_S          (10ull * 366 * 86400)
#define DIGEST_ARENA_BYTES (1u << 20)
#define DIGEST_TEXT_BYTES  (64u << 10)

/* --- values ----------------------------------------------------------------------- */

void progress_clean(char *s)
{
    while (*s) {
        size_t n = utf8_length((unsigned char *)s);

        if (n == 0 || (unsigned char)*s < 0x20 || *s == 0x7f) {
            *s = '?';
            n = 1;
        }
        s += n;
    }
}

static const char *progress_text(struct build *b, const char *s)
{
    char *copy = arena_strdup(b->arena, s);

    if (copy)
        progress_clean(copy);
    else
        b->status = -ENOMEM;
    return copy ? copy : "";
}

static double real_round(double v, int digits)
{
    char text[40];

    (void)snprintf(text, sizeof(text), "%.*g", digits, v);
    return strtod(text, NULL);
}

/* The API server writes 2.0 as 2, so a whole number is an integer from the start. */
static void put_real(struct build *b, struct node *o, const char *key, double v)
{
    if (v == floor(v) && fabs(v) < 1e15)
        node_set_int(b, o, key, (int64_t)v);
    else
        node_set(b, o, key, node_real(b, v));
}

static void put_rate(struct build *b, struct node *o, const char *key, double v)
{
    if (isfinite(v) && v >= 0 && v < 1e15)
        put_real(b, o, key, v < 1e-6 ? 0 : real_round(v, 3));
}

static void put_known(struct build *b, struct node *o, const char *key, int64_t v)
{
    if (v >= 0)
        node_set_int(b, o, key, v);
}

/* --- parts of the progress -------------------------------------------------------- */

/* Steps: those of hvd.progress(), else of the frozen plan. */
static int64_t report_step(const struct live_report *r)
{
    if (r->progress.step >= 0)
        return r->progress.step;
    return r->n_steps > 0 && r->n_steps < INT64_MAX ? (int64_t)r->n_steps : -1;
}

/* -1: unknown. */
static int report_percentage(const struct live_report *r)
{
    const struct live_progress *p = &r->progress;
    bool by_steps = p->step >= 0 && p->total_steps > 0;
    int64_t at = by_steps ? p->step : p->epoch;
    int64_t of = by_steps ? p->total_steps : p->total_epochs;

    if (at < 0 || of <= 0)
        return -1;
    return at >= of ? 100 : (int)((double)at * 100 / (double)of);
}

/* "1200/5000 (24%)", "1200", "epoch 3/10 (30%)": for the table. */
static void put_summary(struct build *b, struct node *o, const struct live_report *r)
{
    const struct live_progress *p = &r->progress;
    int64_t step = report_step(r), total = p->total_steps;
    int percentage = report_percentage(r), n = 0;
    bool by_steps = step >= 0 && (total > 0 || p->total_epochs <= 0 || p->epoch < 0);
    int64_t at = by_steps ? step : p->epoch, of = by_steps ? total : p->total_epochs;
    char text[96];

    if (at < 0)
        return;
    n = snprintf(text, sizeof(text), "%s%lld", by_steps ? "" : "epoch ", (long long)at);
    if (of > 0)
        n += snprintf(text + n, sizeof(text) - (size_t)n, "/%lld", (long long)of);
    if (of > 0 && percentage >= 0)
        (void)snprintf(text + n, sizeof(text) - (size_t)n, " (%d%%)", percentage);
    node_set_str(b, o, "summary", text);
}

static void put_metrics(struct build *b, struct node *o, const struct live_report *r)
{
    const struct live_progress *p = &r->progress;
    struct node *list = node_object(b);
    char text[40];

    for (uint32_t i = 0; i < p->n_metrics && i < LIVE_METRICS_MAX; i++) {
        if (!*p->metrics[i].name)
            continue;
        (void)snprintf(text, sizeof(text), "%.6g", p->metrics[i].value);
        node_set_str(b, list, progress_text(b, p->metrics[i].name), text);
    }
    if (list && list->n > 0)
        node_set(b, o, "metrics", list);
}

/* All but the times. */
static struct node *progress_values(struct build *b, const struct live_report *r)
{
    const struct live_progress *p = &r->progress;
    const struct live_rates *rates = &r->rates;
    struct node *o = node_object(b);

    put_known(b, o, "step", report_step(r));
    if (p->total_steps > 0)
        node_set_int(b, o, "totalSteps", p->total_steps);
    put_known(b, o, "epoch", p->epoch);
    if (p->total_epochs > 0)
        node_set_int(b, o, "totalEpochs", p->total_epochs);
    put_known(b, o, "percentage", report_percentage(r));
    put_summary(b, o, r);
    put_known(b, o, "samples", p->samples);
    put_rate(b, o, "stepsPerSecond", rates->steps_per_s);
    put_rate(b, o, "samplesPerSecond", p->samples_per_s);
    if (rates->bus_bytes_per_s >= 1)
        put_rate(b, o, "busBandwidth", floor(rates->bus_bytes_per_s));
    if (rates->blocked_share >= 0 && rates->blocked_share <= 1)
        put_real(b, o, "exposedCommunication",
                 real_round(floor(rates->blocked_share * 100 + 0.5) / 100, 3));
    put_metrics(b, o, r);
    return o;
}

/* --- the end ---------------------------------------------------------------------- */

/* Seconds until the last step; 0: unknown. */
static uint64_t report_remaining_s(const struct live_report *r)
{
    const struct live_progress *p = &r->progress;
    double s;

    if (p->step < 0 || p->total_steps <= p->step || r->state == LIVE_STALLED
        || !(r->rates.steps_per_s > 0))
        return 0;
    s = (double)(p->total_steps - p->step) / r->rates.steps_per_s;
    return s < ETA_MAX_S ? (uint64_t)s + 1 : 0;
}

static uint64_t eta_grain_s(uint64_t left_s)
{
    return left_s < 600 ? 10 : left_s < 7200 ? 60 : left_s < 86400 ? 600 : 3600;
}

/* "40s", "12m", "1h20m", "3d4h". */
static void format_left(uint64_t s, char ret[32])
{
    if (s < 60)
        (void)snprintf(ret, 32, "%us", (unsigned)s);
    else if (s < 3600)
        (void)snprintf(ret, 32, "%um", (unsigned)(s / 60));
    else if (s < 86400)
        (void)snprintf(ret, 32, "%uh%um", (unsigned)(s / 3600),
                       (unsigned)(s % 3600 / 60));
    else
        (void)snprintf(ret, 32, "%ud%uh", (unsigned)(s / 86400),
                       (unsigned)(s % 86400 / 3600));
}

static void put_eta(struct build *b,
                    struct node *o,
                    const struct live_report *r,
                    uint64_t now_s,
                    const struct node *old)
{
    const char *was = node_str(old, "eta");
    uint64_t left_s = report_remaining_s(r), grain_s = eta_grain_s(left_s);
    uint64_t eta_s = (now_s + left_s + grain_s - 1) / grain_s * grain_s, was_us = 0;
    char text[TIMESTAMP_SIZE];

    if (left_s == 0)
        return;
    if (was && timestamp_parse_us(was, &was_us) == 0) {
        uint64_t was_s = was_us / 1000000u;
        uint64_t apart_s = was_s > eta_s ? was_s - eta_s : eta_s - was_s;

        if (apart_s <= grain_s && was_s > now_s)
            eta_s = was_s;
    }
    node_set_str(b, o, "eta", timestamp_format_s(eta_s, text));
    left_s = eta_s - now_s;
    format_left(left_s < 60 ? (left_s + 9) / 10 * 10 : left_s, text);
    node_set_str(b, o, "remaining", text);
}

/* --- the whole -------------------------------------------------------------------- */

static struct node *without_times(struct build *b, const struct node *progress)
{
    struct node *copy = node_copy(b, progress);

    node_drop(copy, "eta");
    node_drop(copy, "remaining");
    node_drop(copy, "updateTime");
    return copy;
}

struct node *progress_make(struct build *b,
                           const struct live_report *r,
                           uint64_t received_wall_s,
                           const struct node *old)
{
    struct node *o = progress_values(b, r);
    char text[TIMESTAMP_SIZE];

    if (b->status || !o || o->n == 0)
        return NULL;
    if (old && node_equal(o, without_times(b, old)))
        return node_copy(b, old);
    put_eta(b, o, r, received_wall_s, old);
    node_set_str(b, o, "updateTime", timestamp_format_s(received_wall_s, text));
    return b->status ? NULL : o;
}

struct node *progress_at_rest(struct build *b, const struct node *old)
{
    struct node *copy = node_copy(b, old);

    node_drop(copy, "eta");
    node_drop(copy, "remaining");
    return b->status ? NULL : copy;
}

/* --- verdicts --------------------------------------------------------------------- */

static struct live_verdict
verdict_true(struct build *b, const char *reason, const char *text)
{
    if (!text)
        b->status = -ENOMEM;
    return (struct live_verdict){
        .is_true = true, .reason = reason, .text = progress_text(b, text ? text : "")};
}

static bool stall_is_shown(const struct live_report *r)
{
    const struct live_stall *s = &r->stall;

    if (s->since_wall_us == 0)
        return false;
    return *s->text || r->at_wall_us >= s->seen_wall_us + STALL_QUIET_S * 1000000ull;
}

/* The missing ranks as "rank 3", "ranks 3, 4 and 6 more". */
static const char *stall_missing(struct build *b, const struct live_stall *s)
{
    uint32_t n = s->n_missing < 4 ? s->n_missing : 4, at = 0;
    char text[120] = "";

    for (uint32_t i = 0; i < n; i++)
        at += (uint32_t)snprintf(text + at, sizeof(text) - at, "%s%u", i ? ", " : "",
                                 s->missing[i]);
    if (s->n_missing > n)
        (void)snprintf(text + at, sizeof(text) - at, " and %u more", s->n_missing - n);
    return arena_printf(b->arena, "rank%s %s", s->n_missing > 1 ? "s" : "", text);
}

struct live_verdict progress_stall(struct build *b, const struct live_report *r)
{
    const struct live_stall *s = &r->stall;
    char since[TIMESTAMP_SIZE];
    const char *missing, *text = s->text;

    if (!stall_is_shown(r))
        return (struct live_verdict){.reason = "", .text = ""};
    if (!*text) {
        missing = s->n_missing > 0 ? stall_missing(b, s) : "an unknown rank";
        timestamp_format_s(s->since_wall_us / 1000000u, since);
        text = arena_printf(b->arena, "%s%s%s waits for %s since %s",
                            *s->op ? s->op : "a collective", *s->tensor ? " of " : "",
                            s->tensor, missing ? missing : "", since);
    }
    return verdict_true(b, live_cause_name(s->cause), text);
}

struct live_verdict progress_straggler(struct build *b, const struct live_report *r)
{
    const struct live_straggler *s = &r->straggler;
    bool is_host = s->is_worker, is_short = s->cost_s < 1;
    double cost = real_round(is_short ? s->cost_s * 1000 : s->cost_s, 1);
    const char *host = *s->host ? s->host : "an unknown host";
    const char *who =
        is_host ? arena_printf(b->arena, "the ranks on %s delay", host)
                : arena_printf(b->arena, "rank %d on %s delays", s->rank, host);

    if (s->rank < 0)
        return (struct live_verdict){.reason = "", .text = ""};
    return verdict_true(
        b, is_host ? "HostSlow" : "RankSlow",
        arena_printf(b->arena,
                     "%s all other ranks by about %g %s (%.0f%%) of each step",
                     who ? who : "", cost, is_short ? "ms" : "s",
                     real_round(s->share * 100, 1)));
}

bool progress_is_unmet(const struct live_report *r)
{
    return r->state == LIVE_MEETING && r->n_present < r->n_workers
           && r->times.meeting_ms >= MEETING_QUIET_MS;
}

/* --- digests ---------------------------------------------------------------------- */

static uint64_t digest_add(uint64_t h, const char *s)
{
    do
        h = (h ^ (unsigned char)*s) * 1099511628211u; /* FNV-1a, with the NUL */
    while (*s++);
    return h;
}

static uint64_t digest_verdict(const struct live_verdict *v, uint64_t salt)
{
    return v->is_true ? digest_add(salt, v->reason) : 0;
}

static uint64_t digest_unmet(const struct live_report *r, uint64_t salt)
{
    char text[40];

    if (!progress_is_unmet(r))
        return 0;
    (void)snprintf(text, sizeof(text), "%u/%u", r->n_present, r->n_workers);
    return digest_add(salt, text);
}

int progress_digest(const struct live_report *r, struct live_digest *ret)
{
    CLEANUP(arena_release) struct arena a;
    CLEANUP(strbuf_release) struct strbuf text;
    struct build b = {.arena = &a};
    struct live_verdict stall, slow;
    struct node *o;

    arena_init(&a, DIGEST_ARENA_BYTES);
    strbuf_init(&text, DIGEST_TEXT_BYTES);
    o = progress_values(&b, r);
    stall = progress_stall(&b, r);
    slow = progress_straggler(&b, r);
    if (o)
        json_write(o, &text);
    if (!o || b.status || strbuf_status(&text))
        return -ENOMEM;
    ret->verdicts =
        digest_verdict(&stall, 1) ^ digest_verdict(&slow, 2) ^ digest_unmet(r, 3);
    ret->progress = digest_add(14695981039346656037u, strbuf_str(&text));
    ret->progress = digest_add(digest_add(ret->progress, stall.text), slow.text);
    return 0;
}
