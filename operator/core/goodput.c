/* SPDX-License-Identifier: Apache-2.0 */
/* .status.goodput.
 *
 *   ratio                training of the time that the job was not suspended
 *   startTime, time      of the first and the last second that is accounted
 *   seconds, gpuSeconds  by part; parts without any are left out
 *   losses               by part and reason, the largest
 *   current              struct ledger's open time and what the next division of it needs;
 *                        absent when the job has ended
 *
 * The totals have the open time in them, so that readers need not add it; reading takes it
 * out again (ledger_untotal). Called by hvd_goodput.c. */
#include "operator/core/goodput.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "operator/core/timestamp.h"
#include "runtime/base/mem.h"
#include "runtime/base/strbuf.h"

#define SENTENCE_MAX_BYTES 1000 /* of an Event's 1024 */

static const char *const share_names[LEDGER_SHARES] = {
    [SHARE_MEETING] = "meeting",
    [SHARE_STARTING] = "starting",
    [SHARE_TRAINING] = "training",
    [SHARE_STALLED] = "stalled",
};

/* --- reading --------------------------------------------------------------------- */

static uint64_t goodput_count(const struct node *o, const char *key)
{
    int64_t v = node_int(o, key, 0);

    return v > 0 ? (uint64_t)v : 0;
}

static uint64_t goodput_time(const struct node *o, const char *key)
{
    const char *text = node_str(o, key);
    uint64_t us = 0;

    return text && timestamp_parse_us(text, &us) == 0 ? us / 1000000u : 0;
}

static void
goodput_read_reason(const struct node *o, const char *key, char ret[LEDGER_REASON_SIZE])
{
    const char *text = node_str(o, key);

    (void)snprintf(ret, LEDGER_REASON_SIZE, "%s", text ? text : "");
}

static void goodput_read_losses(const struct node *list, struct ledger *l)
{
    for (const struct node *c = list ? list->first : NULL; c; c = c->next) {
        int part = ledger_part_find(node_str(c, "part"));
        struct ledger_loss *x = &l->loss[l->n_losses];

        if (part < 0 || l->n_losses == LEDGER_LOSSES)
            continue;
        *x = (struct ledger_loss){.part = (enum ledger_part)part,
                                  .seconds = goodput_count(c, "seconds"),
                                  .count = (uint32_t)goodput_count(c, "count")};
        goodput_read_reason(c, "reason", x->reason);
        l->n_losses += *x->reason != '\0';
    }
}

static bool goodput_read_current(const struct node *o, struct ledger *l)
{
    int part = ledger_part_find(node_str(o, "part"));
    const struct node *run = node_get(o, "runSeconds");

    if (part < 0)
        return false;
    l->part = (enum ledger_part)part;
    l->since_s = goodput_time(o, "since");
    l->open_gpu_seconds = goodput_count(o, "gpuSeconds");
    l->is_counted = node_bool(o, "counted", false);
    goodput_read_reason(o, "reason", l->reason);
    goodput_read_reason(o, "restartReason", l->cause);
    l->run_s = goodput_time(o, "runTime");
    for (int k = 0; k < LEDGER_SHARES; k++)
        l->taken_s[k] = goodput_count(run, share_names[k]);
    l->step = node_int(o, "step", -1);
    l->top_step = node_int(o, "highestStep", -1);
    l->trained_s = goodput_count(o, "trainedSeconds");
    l->saved_s = goodput_count(o, "savedSeconds");
    l->lost_s = goodput_count(o, "lostSeconds");
    l->has_commits = node_bool(o, "commits", false);
    return l->start_s <= l->since_s && l->since_s <= l->until_s
           && l->seconds[l->part] >= l->until_s - l->since_s;
}

bool goodput_read(const struct node *goodput, struct ledger *ret)
{
    const struct node *seconds = node_get(goodput, "seconds");
    const struct node *gpu_seconds = node_get(goodput, "gpuSeconds");
    const struct node *current = node_get(goodput, "current");
    struct ledger l;
    uint64_t sum = 0;

    ledger_begin(&l, goodput_time(goodput, "startTime"), LEDGER_QUEUED);
    l.until_s = l.since_s = goodput_time(goodput, "time");
    l.is_closed = !current;
    for (int i = 0; i < LEDGER_PARTS; i++) {
        const char *name = ledger_part_name((enum ledger_part)i);

        l.seconds[i] = goodput_count(seconds, name);
        l.gpu_seconds[i] = goodput_count(gpu_seconds, name);
        sum += l.seconds[i];
    }
    if (l.start_s == 0 || l.until_s < l.start_s || sum != l.until_s - l.start_s)
        return false;
    goodput_read_losses(node_get(goodput, "losses"), &l);
    if (current && !goodput_read_current(current, &l))
        return false;
    if (current)
        ledger_untotal(&l);
    *ret = l;
    return true;
}

/* --- writing --------------------------------------------------------------------- */

static void
goodput_set_time(struct build *b, struct node *o, const char *key, uint64_t s)
{
    char text[TIMESTAMP_SIZE];

    if (s)
        node_set_str(b, o, key, timestamp_format_s(s, text));
}

static void
goodput_set_count(struct build *b, struct node *o, const char *key, uint64_t n)
{
    if (n)
        node_set_int(b, o, key, (int64_t)n);
}

static void
goodput_set_text(struct build *b, struct node *o, const char *key, const char *text)
{
    if (*text)
        node_set_str(b, o, key, text);
}

static struct node *goodput_parts(struct build *b, const uint64_t v[LEDGER_PARTS])
{
    struct node *o = node_object(b);

    for (int i = 0; i < LEDGER_PARTS; i++)
        goodput_set_count(b, o, ledger_part_name((enum ledger_part)i), v[i]);
    return o;
}

static struct node *goodput_losses(struct build *b, const struct ledger *total)
{
    struct node *list = node_array(b);

    for (size_t i = 0; i < total->n_losses; i++) {
        const struct ledger_loss *x = &total->loss[i];
        struct node *o = node_object(b);

        node_set_str(b, o, "part", ledger_part_name(x->part));
        node_set_str(b, o, "reason", x->reason);
        node_set_int(b, o, "seconds", (int64_t)x->seconds);
        node_set_int(b, o, "count", x->count);
        node_add(b, list, o);
    }
    return list;
}

static struct node *goodput_current(struct build *b, const struct ledger *l)
{
    struct node *o = node_object(b), *run = node_object(b);

    node_set_str(b, o, "part", ledger_part_name(l->part));
    goodput_set_text(b, o, "reason", l->reason);
    goodput_set_time(b, o, "since", l->since_s);
    goodput_set_count(b, o, "gpuSeconds", l->open_gpu_seconds);
    if (l->is_counted)
        node_set_bool(b, o, "counted", true);
    goodput_set_text(b, o, "restartReason", l->cause);
    goodput_set_time(b, o, "runTime", l->run_s);
    for (int k = 0; k < LEDGER_SHARES; k++)
        goodput_set_count(b, run, share_names[k], l->taken_s[k]);
    if (l->run_s)
        node_set(b, o, "runSeconds", run);
    if (l->step >= 0)
        node_set_int(b, o, "step", l->step);
    if (l->top_step >= 0)
        node_set_int(b, o, "highestStep", l->top_step);
    goodput_set_count(b, o, "trainedSeconds", l->trained_s);
    goodput_set_count(b, o, "savedSeconds", l->saved_s);
    goodput_set_count(b, o, "lostSeconds", l->lost_s);
    if (l->has_commits)
        node_set_bool(b, o, "commits", true);
    return o;
}

static bool gpus_are_counted(const struct ledger *total)
{
    for (int i = 0; i < LEDGER_PARTS; i++) {
        if (total->gpu_seconds[i])
            return true;
    }
    return false;
}

struct node *goodput_node(struct build *b, const struct ledger *l)
{
    struct node *o = node_object(b);
    uint64_t all_s = l->until_s - l->start_s;
    struct ledger total;
    char ratio[8];

    ledger_total(l, &total);
    all_s -= total.seconds[LEDGER_SUSPENDED];
    if (all_s) {
        (void)snprintf(ratio, sizeof(ratio), "%u%%",
                       (unsigned)(total.seconds[LEDGER_TRAINING] * 100u / all_s));
        node_set_str(b, o, "ratio", ratio);
    }
    goodput_set_time(b, o, "startTime", l->start_s);
    goodput_set_time(b, o, "time", l->until_s);
    node_set(b, o, "seconds", goodput_parts(b, total.seconds));
    if (gpus_are_counted(&total))
        node_set(b, o, "gpuSeconds", goodput_parts(b, total.gpu_seconds));
    if (total.n_losses)
        node_set(b, o, "losses", goodput_losses(b, &total));
    if (!l->is_closed)
        node_set(b, o, "current", goodput_current(b, l));
    return b->status ? NULL : o;
}

void goodput_put(struct build *b,
                 struct node *status,
                 const struct node *stored,
                 struct node *goodput,
                 bool is_due)
{
    const struct node *was = node_get(stored, "goodput");
    struct node *rest = stored ? node_copy(b, stored) : NULL;

    if (rest)
        node_drop(rest, "goodput");
    if (!rest || is_due || !node_equal(rest, status))
        node_set(b, status, "goodput", goodput);
    else if (was)
        node_set(b, status, "goodput", node_copy(b, was));
}

/* --- the sentence ---------------------------------------------------------------- */

static void goodput_write_duration(struct strbuf *out, uint64_t s)
{
    uint64_t min = s / 60u, h = min / 60u;

    if (h)
        strbuf_printf(out, "%" PRIu64 " h %" PRIu64 " min", h, min % 60u);
    else if (min)
        strbuf_printf(out, "%" PRIu64 " min %" PRIu64 " s", min, s % 60u);
    else
        strbuf_printf(out, "%" PRIu64 " s", s);
}

static void goodput_write_gpus(struct strbuf *out, const struct ledger *total)
{
    uint64_t sum = 0;

    for (int i = 0; i < LEDGER_PARTS; i++)
        sum += total->gpu_seconds[i];
    if (sum >= 36000)
        strbuf_printf(out, " (%" PRIu64 " GPU h)", (sum + 1800) / 3600);
    else if (sum)
        strbuf_printf(out, " (%.1f GPU h)", (double)sum / 3600.0);
}

/* " (RankFailed, 2 restarts; Evicted, 1 restart)". */
static void
goodput_write_reasons(struct strbuf *out, const struct ledger *total, int part)
{
    bool is_restart = part == LEDGER_REPEATED || part == LEDGER_DOWN;
    bool is_first = true;

    for (size_t i = 0; i < total->n_losses; i++) {
        const struct ledger_loss *x = &total->loss[i];

        if ((int)x->part != part)
            continue;
        strbuf_printf(out, "%s%s", is_first ? " (" : "; ", x->reason);
        if (is_restart)
            strbuf_printf(out, ", %u restart%s", x->count, x->count == 1 ? "" : "s");
        is_first = false;
    }
    if (!is_first)
        strbuf_puts(out, ")");
}

static void goodput_write_part(struct strbuf *out, const struct ledger *total, int part)
{
    uint64_t all_s = total->until_s - total->start_s, s = total->seconds[part];
    uint64_t percent = all_s ? (s * 100u + all_s / 2) / all_s : 0;

    strbuf_printf(out, "%s ", ledger_part_name((enum ledger_part)part));
    if (percent || !s)
        strbuf_printf(out, "%" PRIu64 " %%", percent);
    else
        strbuf_puts(out, "under 1 %");
    goodput_write_reasons(out, total, part);
}

/* The largest part that is smaller than `below`, or as large and later in the enum. */
static int goodput_next_part(const struct ledger *total, int last)
{
    int best = -1;

    for (int i = 0; i < LEDGER_PARTS; i++) {
        uint64_t s = total->seconds[i];
        uint64_t below = last < 0 ? UINT64_MAX : total->seconds[last];

        if (i == LEDGER_TRAINING || !s || s > below || (s == below && i <= last))
            continue;
        if (best < 0 || s > total->seconds[best])
            best = i;
    }
    return best;
}

const char *goodput_sentence(struct arena *a, const struct ledger *l)
{
    CLEANUP(strbuf_release) struct strbuf out;
    struct ledger total;

    ledger_total(l, &total);
    strbuf_init(&out, SENTENCE_MAX_BYTES);
    strbuf_puts(&out, "of ");
    goodput_write_duration(&out, l->until_s - l->start_s);
    goodput_write_gpus(&out, &total);
    strbuf_puts(&out, ": ");
    goodput_write_part(&out, &total, LEDGER_TRAINING);
    for (int i = goodput_next_part(&total, -1); i >= 0;
         i = goodput_next_part(&total, i)) {
        strbuf_puts(&out, ", ");
        goodput_write_part(&out, &total, i);
    }
    return strbuf_status(&out) < 0 ? NULL : arena_strdup(a, strbuf_str(&out));
}

/* --- reasons --------------------------------------------------------------------- */

/* The name of the resource after "Insufficient ", as "insufficient nvidia.com/gpu". */
static bool waiting_read_resource(const char *text, char ret[LEDGER_REASON_SIZE])
{
    static const char word[] = "Insufficient ";
    const char *at = strstr(text, word);
    int n;

    if (!at)
        return false;
    at += sizeof(word) - 1;
    n = (int)strcspn(at, ", ;)");
    if (n > 1 && at[n - 1] == '.')
        n--;
    (void)snprintf(ret, LEDGER_REASON_SIZE, "insufficient %.*s",
                   n < LEDGER_REASON_SIZE ? n : LEDGER_REASON_SIZE, at);
    return n > 0;
}

void goodput_waiting_reason(const char *text,
                            bool is_scheduled,
                            char ret[LEDGER_REASON_SIZE])
{
    static const struct {
        const char *part, *reason;
    } rows[] = {
        {"exceeded quota", "quota"},
        {"untolerated taint", "taints"},
        {"node affinity", "node selector"},
        {"PersistentVolumeClaim", "volume"},
        {"persistentvolumeclaim", "volume"},
        {"olume", "volume"},
        {"mage", "image"},
        {"configmap", "ConfigMap"},
        {"secret", "Secret"},
        {"sandbox", "pod sandbox"},
        {"gate", "scheduling gates"},
    };

    if (waiting_read_resource(text, ret))
        return;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (strstr(text, rows[i].part)) {
            (void)snprintf(ret, LEDGER_REASON_SIZE, "%s", rows[i].reason);
            return;
        }
    }
    (void)snprintf(ret, LEDGER_REASON_SIZE, "%s",
                   is_scheduled ? "not started" : "not scheduled");
}
