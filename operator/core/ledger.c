/* SPDX-License-Identifier: Apache-2.0 */
/* Dividing the time of a job.
 *
 *   start_s                since_s          until_s
 *     |------- final ---------|----- open -----|
 *
 * The open time is of one part. Each call of ledger_advance divides it anew, because a
 * snapshot can show that a pod was bound, or a container started, before the last sync:
 *
 *   since_s     the newest pod   all are bound   all have started    report       to_s
 *     |-- as before --|---- queued ----|---- pulling ----|-- its times --|- its state -|
 *
 * So a sync that comes late, or a watch that lags, moves no second to another part. What
 * is final is moved no more: the time before a report of the agent, before another
 * reason, and before a change of the job's state.
 *
 * Invariants
 *  1. The parts add up to until_s - start_s. Every time from outside is clipped to
 *     since_s and to_s, so no clock can break this.
 *  2. A second is taken from a report once: taken_s has what was taken, and the rest of
 *     the time between two reports is of the state that the later one has.
 *  3. The order of syncs does not matter for the time between two changes that the pods
 *     show with their times.
 *
 * Called by core/goodput.c and hvd_goodput.c. */
#include "operator/core/ledger.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"

#define NEVER UINT64_MAX

static const char *const ledger_names[] = {
    [LEDGER_QUEUED] = "queued",       [LEDGER_PULLING] = "pulling",
    [LEDGER_STARTING] = "starting",   [LEDGER_MEETING] = "meeting",
    [LEDGER_TRAINING] = "training",   [LEDGER_STALLED] = "stalled",
    [LEDGER_REPEATED] = "repeated",   [LEDGER_DOWN] = "down",
    [LEDGER_SUSPENDED] = "suspended",
};
_Static_assert(ARRAY_LEN(ledger_names) == LEDGER_PARTS, "one name per part");

const char *ledger_part_name(enum ledger_part p)
{
    return ledger_names[p];
}

int ledger_part_find(const char *name)
{
    for (int i = 0; i < LEDGER_PARTS; i++) {
        if (name && strcmp(ledger_names[i], name) == 0)
            return i;
    }
    return -1;
}

static uint64_t ledger_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t ledger_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t ledger_minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static void ledger_set_reason(char to[LEDGER_REASON_SIZE], const char *reason)
{
    if (to != reason)
        (void)snprintf(to, LEDGER_REASON_SIZE, "%s", reason);
}

/* --- losses ---------------------------------------------------------------------- */

static struct ledger_loss *
ledger_find_loss(struct ledger *l, enum ledger_part part, const char *reason)
{
    for (size_t i = 0; i < l->n_losses; i++) {
        if (l->loss[i].part == part && strcmp(l->loss[i].reason, reason) == 0)
            return &l->loss[i];
    }
    return NULL;
}

/* A place for a loss of this size; NULL if all others are larger. */
static struct ledger_loss *ledger_place_loss(struct ledger *l, uint64_t seconds)
{
    struct ledger_loss *least = &l->loss[0];

    if (l->n_losses < LEDGER_LOSSES)
        return &l->loss[l->n_losses++];
    for (size_t i = 1; i < l->n_losses; i++) {
        if (l->loss[i].seconds < least->seconds)
            least = &l->loss[i];
    }
    return least->seconds < seconds ? least : NULL;
}

static void ledger_add_loss(struct ledger *l, uint64_t seconds, uint32_t count)
{
    struct ledger_loss *x = ledger_find_loss(l, l->part, l->reason);

    if (!*l->reason || seconds + count == 0)
        return;
    if (!x) {
        x = ledger_place_loss(l, seconds);
        if (!x)
            return;
        *x = (struct ledger_loss){.part = l->part};
        ledger_set_reason(x->reason, l->reason);
    }
    x->seconds += seconds;
    x->count += count;
}

static bool loss_is_before(const struct ledger_loss *a, const struct ledger_loss *b)
{
    if (a->seconds != b->seconds)
        return a->seconds > b->seconds;
    return a->part != b->part ? a->part < b->part : strcmp(a->reason, b->reason) < 0;
}

static void ledger_sort_losses(struct ledger *l)
{
    for (size_t i = 1; i < l->n_losses; i++) {
        for (size_t k = i; k > 0 && loss_is_before(&l->loss[k], &l->loss[k - 1]); k--) {
            struct ledger_loss x = l->loss[k];

            l->loss[k] = l->loss[k - 1];
            l->loss[k - 1] = x;
        }
    }
}

void ledger_total(const struct ledger *l, struct ledger *ret)
{
    uint64_t open_s = l->until_s - l->since_s;

    *ret = *l;
    ret->seconds[l->part] += open_s;
    ret->gpu_seconds[l->part] += l->open_gpu_seconds;
    if (open_s)
        ledger_add_loss(ret, open_s, !l->is_counted);
    ledger_sort_losses(ret);
}

void ledger_untotal(struct ledger *l)
{
    uint64_t open_s = l->until_s - l->since_s;
    struct ledger_loss *x = ledger_find_loss(l, l->part, l->reason);

    l->seconds[l->part] = ledger_minus(l->seconds[l->part], open_s);
    l->gpu_seconds[l->part] =
        ledger_minus(l->gpu_seconds[l->part], l->open_gpu_seconds);
    if (!x || !open_s)
        return;
    x->seconds = ledger_minus(x->seconds, open_s);
    x->count -= !l->is_counted && x->count > 0;
    if (x->seconds == 0) {
        l->n_losses--;
        memmove(x, x + 1, (size_t)(&l->loss[l->n_losses] - x) * sizeof(*x));
    }
}

/* --- the open time --------------------------------------------------------------- */

void ledger_pin(struct ledger *l)
{
    uint64_t open_s = l->until_s - l->since_s;

    l->seconds[l->part] += open_s;
    l->gpu_seconds[l->part] += l->open_gpu_seconds;
    if (open_s) {
        ledger_add_loss(l, open_s, !l->is_counted);
        l->is_counted = true;
    }
    l->open_gpu_seconds = 0;
    l->since_s = l->until_s;
}

void ledger_begin(struct ledger *l, uint64_t start_s, enum ledger_part part)
{
    *l = (struct ledger){.start_s = start_s,
                         .until_s = start_s,
                         .since_s = start_s,
                         .part = part,
                         .step = -1,
                         .top_step = -1};
}

void ledger_switch(struct ledger *l, enum ledger_part part, const char *reason)
{
    ledger_pin(l);
    l->part = part;
    l->is_counted = false;
    ledger_set_reason(l->reason, reason);
}

void ledger_close(struct ledger *l)
{
    ledger_switch(l, l->part, "");
    l->is_closed = true;
}

struct ledger_work {
    struct ledger *l;
    const struct ledger_view *v;
    uint64_t to_s, was_until_s;
    uint64_t spare_gpu_seconds; /* of pods that were seen before; all are gone now */
};

static uint64_t
view_gpu_seconds(const struct ledger_view *v, uint64_t from, uint64_t to)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < v->n_pods; i++) {
        const struct ledger_pod *p = &v->pod[i];
        uint64_t begin = ledger_max(from, p->bound_s);
        uint64_t end = p->end_s ? ledger_min(to, p->end_s) : to;

        if (p->bound_s && p->gpus)
            sum += p->gpus * ledger_minus(end, begin);
    }
    return sum;
}

/* False: the open time has GPUs of pods that another operator saw. */
static bool view_has_bound(const struct ledger_view *v, uint64_t by_s)
{
    for (size_t i = 0; i < v->n_pods; i++) {
        if (v->pod[i].bound_s && v->pod[i].bound_s <= by_s)
            return true;
    }
    return false;
}

/* Extends the open time; the part stays. */
static void ledger_extend(struct ledger_work *w, uint64_t to_s)
{
    struct ledger *l = w->l;

    if (to_s <= l->until_s)
        return;
    l->open_gpu_seconds +=
        view_gpu_seconds(w->v, l->until_s, to_s) + w->spare_gpu_seconds;
    w->spare_gpu_seconds = 0;
    l->until_s = to_s;
}

/* Another reason than before counts from the sync that sees it. */
static void ledger_put_reason(struct ledger_work *w, uint64_t to_s, const char *reason)
{
    struct ledger *l = w->l;

    if (!*reason || strcmp(l->reason, reason) == 0)
        return;
    if (*l->reason) {
        ledger_extend(w, ledger_min(to_s, w->was_until_s));
        ledger_switch(l, l->part, reason);
    }
    ledger_set_reason(l->reason, reason);
}

/* From until_s to to_s the job was in this part. */
static void ledger_put(struct ledger_work *w,
                       uint64_t to_s,
                       enum ledger_part part,
                       const char *reason)
{
    struct ledger *l = w->l;

    to_s = ledger_min(to_s, w->to_s);
    if (to_s <= l->until_s)
        return;
    if (part != l->part)
        ledger_switch(l, part, reason);
    else
        ledger_put_reason(w, to_s, reason);
    ledger_extend(w, to_s);
}

/* --- what is repeated ------------------------------------------------------------ */

/* How much of d seconds of training, at the end of which the job is at this step. The
 * work on a step counts as new as soon as the step before it was the highest one. */
static uint64_t
ledger_repeated_by_step(const struct ledger *l, int64_t step, uint64_t d)
{
    if (l->step >= l->top_step)
        return 0;
    if (step <= l->top_step)
        return d;
    if (l->step < 0)
        return 0; /* it was resumed from an unknown step */
    return (uint64_t)((double)d * (double)(l->top_step - l->step)
                      / (double)(step - l->step));
}

static uint64_t ledger_repeated(const struct ledger *l, int64_t step, uint64_t d)
{
    if (l->top_step >= 0)
        return ledger_repeated_by_step(l, step, d);
    return ledger_min(d, ledger_minus(l->lost_s, l->trained_s));
}

static void
ledger_learn(struct ledger *l, const struct ledger_report *r, uint64_t trained_s)
{
    uint64_t after_s;

    if (r->step >= 0) {
        l->step = r->step;
        if (r->step > l->top_step)
            l->top_step = r->step;
    }
    if (l->top_step >= 0)
        return;
    l->trained_s += trained_s;
    if (!r->commit_s || r->commit_s < r->run_s)
        return;
    l->has_commits = true;
    after_s = ledger_minus(r->at_s, r->commit_s);
    l->saved_s = ledger_max(l->saved_s, ledger_minus(l->trained_s, after_s));
}

/* -1: the part is not one of the agent's. */
static int ledger_part_share(enum ledger_part p)
{
    switch (p) {
    case LEDGER_MEETING:
        return SHARE_MEETING;
    case LEDGER_STARTING:
        return SHARE_STARTING;
    case LEDGER_TRAINING:
    case LEDGER_REPEATED:
        return SHARE_TRAINING;
    case LEDGER_STALLED:
        return SHARE_STALLED;
    case LEDGER_QUEUED:
    case LEDGER_PULLING:
    case LEDGER_DOWN:
    case LEDGER_SUSPENDED:
        break;
    }
    return -1;
}

void ledger_end_attempt(struct ledger *l, const char *cause)
{
    uint64_t open_s = l->until_s - l->since_s;

    int share = ledger_part_share(l->part);

    if (l->run_s && share >= 0) /* the last report did not have this time */
        l->taken_s[share] += open_s;
    if (l->run_s && share == SHARE_TRAINING && l->top_step < 0)
        l->trained_s += open_s;
    l->lost_s = l->has_commits && l->top_step < 0
                    ? ledger_minus(ledger_max(l->lost_s, l->trained_s), l->saved_s)
                    : 0;
    l->trained_s = l->saved_s = 0;
    l->step = -1;
    ledger_set_reason(l->cause, cause);
}

/* --- reports --------------------------------------------------------------------- */

static enum ledger_part ledger_training_part(const struct ledger *l)
{
    bool is_again = l->top_step >= 0 ? l->step < l->top_step : l->trained_s < l->lost_s;

    return is_again ? LEDGER_REPEATED : LEDGER_TRAINING;
}

static enum ledger_part ledger_share_part(const struct ledger *l, enum ledger_share s)
{
    switch (s) {
    case SHARE_MEETING:
        return LEDGER_MEETING;
    case SHARE_STARTING:
        return LEDGER_STARTING;
    case SHARE_TRAINING:
        return ledger_training_part(l);
    case SHARE_STALLED:
        return LEDGER_STALLED;
    }
    return LEDGER_TRAINING;
}

static void ledger_put_run(struct ledger_work *w, uint64_t to_s, enum ledger_part part)
{
    const char *reason = "";

    if (part == LEDGER_REPEATED)
        reason = w->l->cause;
    else if (part == LEDGER_STALLED && w->v->report)
        reason = w->v->report->stall;
    ledger_put(w, to_s, part, reason);
}

/* Another run of the agent: the time before it is that of its container. */
static void ledger_begin_run(struct ledger_work *w, const struct ledger_report *r)
{
    if (r->run_s == w->l->run_s)
        return;
    ledger_put_run(w, ledger_min(r->run_s, r->at_s), LEDGER_STARTING);
    w->l->run_s = r->run_s;
    memset(w->l->taken_s, 0, sizeof(w->l->taken_s));
}

/* While pods were missing, or had not started, the agents met: that time was counted as
 * queued and pulling, and is taken from the front. */
static void
ledger_skip_shares(struct ledger *l, const struct ledger_report *r, uint64_t left_s)
{
    uint64_t sum_s = 0, skip_s;

    for (int k = 0; k < LEDGER_SHARES; k++)
        sum_s += ledger_minus(r->share_s[k], l->taken_s[k]);
    skip_s = ledger_minus(sum_s, left_s);
    for (int k = 0; k < LEDGER_SHARES; k++) {
        uint64_t d = ledger_min(skip_s, ledger_minus(r->share_s[k], l->taken_s[k]));

        l->taken_s[k] += d;
        skip_s -= d;
    }
}

/* Training of d seconds, first what is repeated. Out of order with the other shares only
 * within the time between two reports. */
static void
ledger_put_training(struct ledger_work *w, const struct ledger_report *r, uint64_t d)
{
    uint64_t again_s = ledger_repeated(w->l, r->step, d);
    uint64_t from_s = w->l->until_s;

    ledger_put_run(w, from_s + again_s, LEDGER_REPEATED);
    ledger_put_run(w, from_s + d, LEDGER_TRAINING);
}

/* The time since the last report, by its shares. The state of the report is last. */
static void ledger_put_shares(struct ledger_work *w, const struct ledger_report *r)
{
    struct ledger *l = w->l;
    uint64_t left_s = ledger_minus(ledger_min(r->at_s, w->to_s), l->until_s);
    uint64_t d[LEDGER_SHARES];

    ledger_skip_shares(l, r, left_s);
    for (int k = 0; k < LEDGER_SHARES; k++) {
        d[k] = ledger_min(left_s, ledger_minus(r->share_s[k], l->taken_s[k]));
        left_s -= d[k];
    }
    d[r->state] += left_s;
    for (int i = 0; i < LEDGER_SHARES; i++) {
        bool is_last = i == LEDGER_SHARES - 1;
        /* meeting, starting, training, stalled without the state; then the state */
        int k = is_last ? (int)r->state : i + (i >= (int)r->state);

        l->taken_s[k] += d[k];
        if (k == SHARE_TRAINING)
            ledger_put_training(w, r, d[k]);
        else
            ledger_put_run(w, l->until_s + d[k],
                           ledger_share_part(l, (enum ledger_share)k));
    }
    ledger_learn(l, r, d[SHARE_TRAINING]);
}

/* The ranks run, as far as is known. */
static bool ledger_runs(enum ledger_part p)
{
    return ledger_part_share(p) >= 0;
}

/* All containers have started by until_s. */
static void ledger_put_running(struct ledger_work *w)
{
    const struct ledger_report *r = w->v->report;
    struct ledger *l = w->l;

    if (l->until_s >= w->to_s)
        return;
    if (r && ledger_min(r->at_s, w->to_s) > l->until_s) {
        ledger_begin_run(w, r);
        ledger_put_shares(w, r);
        ledger_pin(l);
    }
    if (r && r->at_s >= l->since_s && r->run_s == l->run_s)
        ledger_put_run(w, w->to_s, ledger_share_part(l, r->state));
    else if (ledger_runs(l->part))
        ledger_put(w, w->to_s, l->part, "");
    else
        ledger_put_run(w, w->to_s, LEDGER_TRAINING);
}

/* --- pods ------------------------------------------------------------------------ */

struct ledger_marks {
    uint64_t made_s, bound_s, run_s; /* of the last pod; NEVER: not all yet */
};

static struct ledger_marks view_marks(const struct ledger_view *v)
{
    struct ledger_marks m = {0};

    if (v->is_incomplete)
        return (struct ledger_marks){NEVER, NEVER, NEVER};
    for (size_t i = 0; i < v->n_pods; i++) {
        const struct ledger_pod *p = &v->pod[i];

        if (!p->is_required)
            continue;
        m.made_s = ledger_max(m.made_s, p->made_s);
        m.bound_s = ledger_max(m.bound_s, p->bound_s ? p->bound_s : NEVER);
        m.run_s = ledger_max(m.run_s, p->run_s ? p->run_s : NEVER);
    }
    return m;
}

/* What pods wait for now says nothing about what they waited for until at_s. */
static const char *ledger_waiting(const struct ledger_work *w, uint64_t at_s)
{
    return at_s >= w->to_s ? w->v->waiting : "";
}

/* Until the newest pod was made, the pods of before are not known: the job was in the
 * part that was open. */
static void ledger_put_pods(struct ledger_work *w)
{
    struct ledger_marks m = view_marks(w->v);
    struct ledger *l = w->l;

    if (m.made_s <= l->since_s && ledger_runs(l->part))
        return;
    ledger_put(w, m.made_s, l->part,
               l->part == LEDGER_QUEUED ? ledger_waiting(w, m.made_s) : "");
    ledger_put(w, m.bound_s, LEDGER_QUEUED, ledger_waiting(w, m.bound_s));
    ledger_put(w, m.run_s, LEDGER_PULLING, ledger_waiting(w, m.run_s));
}

void ledger_advance(struct ledger *l, const struct ledger_view *v, uint64_t to_s)
{
    struct ledger_work w = {.l = l, .v = v, .to_s = to_s, .was_until_s = l->until_s};

    if (l->is_closed)
        return;
    if (!view_has_bound(v, l->until_s))
        w.spare_gpu_seconds = l->open_gpu_seconds;
    l->until_s = l->since_s;
    l->open_gpu_seconds = 0;
    if (v->is_live) {
        ledger_put_pods(&w);
        ledger_put_running(&w);
    } else {
        ledger_put(&w, w.to_s, l->part, "");
    }
    l->open_gpu_seconds += w.spare_gpu_seconds;
}
