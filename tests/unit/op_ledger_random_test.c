/* SPDX-License-Identifier: Apache-2.0 */
/* The ledger of a job: thousands of random histories, whose seconds an oracle counts one by
 * one. RM_SEEDS=N runs N of each kind, RM_SEED=N that one alone. */
#include "tests/unit/unit.h"

#include "tests/unit/op_ledger_tale.h"
#include "tests/unit/seeded.h"

enum { MAX_PODS = 4, MAX_ATTEMPTS = 4, MAX_S = 4000 };

struct attempt {
    struct ledger_pod pod[MAX_PODS];
    uint32_t run_s, fail_s;  /* all have started; the first failure or the end */
    uint32_t pause_s;        /* suspended from then on, instead of a failure; 0: not */
    uint32_t gone_s, next_s; /* the pods have gone; the next ones may be made */
};

/* What happened. Seconds since T0 in all times of it, 0: never. */
struct history {
    struct seeded random;
    uint64_t seed;
    uint32_t n_pods, n_attempts, end_s;
    struct attempt attempt[MAX_ATTEMPTS];
    uint8_t share[MAX_S]; /* enum ledger_share of each second of a run */
    uint64_t truth[LEDGER_PARTS], gpu_truth[LEDGER_PARTS];
    bool has_reports;
};

static uint32_t history_below(struct history *h, uint32_t n)
{
    return seeded_below(&h->random, n);
}

static uint32_t later(uint64_t a, uint32_t b)
{
    return a > b ? (uint32_t)a : b;
}

static void history_add_attempt(struct history *h, struct attempt *a, uint32_t from)
{
    uint32_t run = 0;

    for (uint32_t i = 0; i < h->n_pods; i++) {
        struct ledger_pod *p = &a->pod[i];

        p->is_required = true;
        p->made_s = from + 1 + history_below(h, 4);
        p->bound_s = p->made_s + history_below(h, 40);
        p->run_s = p->bound_s + history_below(h, 40);
        p->gpus = history_below(h, 3) * 4u;
        run = later(p->run_s, run);
    }
    a->run_s = run;
    a->fail_s = run + 1 + history_below(h, 400);
    if (history_below(h, 6) == 0) /* the agents do not meet */
        a->fail_s = run - history_below(h, run < 30 ? run : 30);
    for (uint32_t i = 0; i < h->n_pods; i++)
        a->fail_s = later(a->pod[i].made_s, a->fail_s);
    if (history_below(h, 3) == 0)
        a->pause_s = a->fail_s;
    for (uint32_t i = 0; i < h->n_pods; i++) {
        struct ledger_pod *p = &a->pod[i];

        p->bound_s = p->bound_s > a->fail_s ? 0 : p->bound_s;
        p->run_s = p->run_s > a->fail_s ? 0 : p->run_s;
        p->end_s = a->fail_s + history_below(h, 10);
        a->gone_s = later(p->end_s, a->gone_s);
    }
    a->next_s = a->gone_s + 1 + history_below(h, 30);
}

static bool
all_have(const struct history *h, const struct attempt *a, int what, uint32_t s)
{
    for (uint32_t i = 0; i < h->n_pods; i++) {
        const struct ledger_pod *p = &a->pod[i];
        uint64_t at = what == 0 ? p->made_s : (what == 1 ? p->bound_s : p->run_s);

        if (!at || at > s)
            return false;
    }
    return true;
}

/* In what the second from s to s + 1 was spent. */
static enum ledger_part truth_of(const struct history *h, uint32_t s)
{
    static const enum ledger_part parts[] = {[SHARE_MEETING] = LEDGER_MEETING,
                                             [SHARE_STARTING] = LEDGER_STARTING,
                                             [SHARE_TRAINING] = LEDGER_TRAINING,
                                             [SHARE_STALLED] = LEDGER_STALLED};

    for (uint32_t k = 0; k < h->n_attempts; k++) {
        const struct attempt *a = &h->attempt[k];

        if (s < a->fail_s && all_have(h, a, 2, s))
            return h->has_reports ? parts[h->share[s]] : LEDGER_TRAINING;
        if (s < a->fail_s && all_have(h, a, 1, s))
            return LEDGER_PULLING;
        if (s < a->fail_s && (k == 0 || all_have(h, a, 0, s)))
            return LEDGER_QUEUED;
        if (s < a->fail_s)
            return h->attempt[k - 1].pause_s ? LEDGER_QUEUED : LEDGER_DOWN;
        if (s < a->next_s)
            return a->pause_s ? LEDGER_SUSPENDED : LEDGER_DOWN;
    }
    return LEDGER_DOWN;
}

static void history_count(struct history *h)
{
    for (uint32_t s = 0; s < h->end_s; s++) {
        enum ledger_part part = truth_of(h, s);

        h->truth[part]++;
        for (uint32_t k = 0; k < h->n_attempts; k++) {
            for (uint32_t i = 0; i < h->n_pods; i++) {
                const struct ledger_pod *p = &h->attempt[k].pod[i];

                if (p->bound_s && p->bound_s <= s && s < p->end_s)
                    h->gpu_truth[part] += p->gpus;
            }
        }
    }
}

static void history_make(struct history *h, uint64_t seed, bool has_reports)
{
    uint32_t at = 0, share = SHARE_MEETING;

    *h = (struct history){.random = {.state = seed}, .seed = seed};
    h->has_reports = has_reports;
    h->n_pods = 1 + history_below(h, MAX_PODS);
    h->n_attempts = 1 + history_below(h, MAX_ATTEMPTS);
    for (uint32_t k = 0; k < h->n_attempts; k++) {
        history_add_attempt(h, &h->attempt[k], at);
        at = h->attempt[k].next_s;
    }
    h->attempt[h->n_attempts - 1].pause_s = 0;
    h->end_s = at;
    assert_true(at < MAX_S);
    for (uint32_t s = 0; s < at; s++) {
        if (history_below(h, 20) == 0)
            share = history_below(h, LEDGER_SHARES);
        h->share[s] = (uint8_t)share;
    }
    history_count(h);
}

/* The operator, which sees at T0 + now what happened until `seen`. */
struct follower {
    struct history *h;
    struct ledger l;
    uint32_t k; /* attempt */
    bool is_over, has_jumped;
    struct ledger_pod pod[MAX_PODS];
    struct ledger_report report;
};

static uint64_t known(uint64_t s, uint32_t seen)
{
    return s && s <= seen ? T0 + s : 0;
}

static void follower_read(struct follower *f, uint32_t seen, struct ledger_view *v)
{
    const struct attempt *a = &f->h->attempt[f->k];

    for (uint32_t i = 0; i < f->h->n_pods; i++) {
        const struct ledger_pod *p = &a->pod[i];

        f->pod[i] = (struct ledger_pod){.is_required = p->made_s <= seen,
                                        .made_s = known(p->made_s, seen),
                                        .bound_s = known(p->bound_s, seen),
                                        .run_s = known(p->run_s, seen),
                                        .end_s = known(p->end_s, seen),
                                        .gpus = p->gpus};
        v->is_incomplete |= !f->pod[i].is_required;
    }
    v->pod = f->pod;
    v->n_pods = f->h->n_pods;
}

/* Worker 0's agent runs from its container's start on. */
static void follower_ask(struct follower *f, uint32_t at, struct ledger_view *v)
{
    const struct attempt *a = &f->h->attempt[f->k];
    uint32_t from = (uint32_t)a->pod[0].run_s;

    if (!f->h->has_reports || !from || at <= from || at > a->fail_s)
        return;
    f->report = (struct ledger_report){
        .at_s = T0 + at, .run_s = T0 + from, .step = -1, .stall = ""};
    for (uint32_t s = from; s < at; s++) /* nobody trains before all run */
        f->report.share_s[s < a->run_s ? SHARE_MEETING : f->h->share[s]]++;
    f->report.state =
        (enum ledger_share)(at <= a->run_s ? SHARE_MEETING : f->h->share[at - 1]);
    v->report = &f->report;
}

/* The operator's clock shows T0 + now. */
static void follower_sync(struct follower *f, uint32_t now, uint32_t seen)
{
    struct ledger_view v = {.is_live = true, .waiting = ""};
    const struct attempt *a = &f->h->attempt[f->k];
    bool is_last = f->k == f->h->n_attempts - 1;

    follower_read(f, seen, &v);
    v.is_live = !f->is_over;
    if (!f->is_over && seen >= a->fail_s) {
        ledger_advance(&f->l, &v, T0 + a->fail_s);
        ledger_end_attempt(&f->l, "R");
        ledger_switch(&f->l, a->pause_s ? LEDGER_SUSPENDED : LEDGER_DOWN, "R");
        f->is_over = true;
        v.is_live = false;
    } else {
        follower_ask(f, seen, &v);
    }
    ledger_advance(&f->l, &v, T0 + now);
    ledger_must_add_up(&f->l, f->h->seed);
    if (history_below(f->h, 3) == 0)
        ledger_reload(&f->l);
    if (!f->is_over || is_last || seen < a->next_s)
        return;
    ledger_advance(&f->l, &v, T0 + a->next_s); /* now new ones are made */
    if (a->pause_s)
        ledger_switch(&f->l, LEDGER_QUEUED, "");
    ledger_pin(&f->l);
    f->is_over = false;
    f->k++;
}

/* max_gap: at most so long between two syncs, and 0 to 3 seconds until an event is seen. */
static void history_follow(struct history *h, uint32_t max_gap, bool has_jumps)
{
    struct follower f = {.h = h};
    uint32_t now = 0, seen = 0, ahead = 0;

    ledger_begin(&f.l, T0, LEDGER_QUEUED);
    while (now < h->end_s) {
        now += 1 + history_below(h, max_gap);
        now = now > h->end_s ? h->end_s : now;
        seen = later(seen, now - history_below(h, now < 3 ? 1 : 4));
        if (now == h->end_s)
            seen = now;
        if (has_jumps && history_below(h, 10) == 0)
            ahead = ahead ? 0 : 1 + history_below(h, 5000);
        follower_sync(&f, now + ahead, seen);
    }
    while (f.k < h->n_attempts - 1 || !f.is_over)
        follower_sync(&f, h->end_s + ahead, h->end_s);
    follower_sync(&f, h->end_s, h->end_s);
    ledger_close(&f.l);
    ledger_must_add_up(&f.l, h->seed);
    for (int i = 0; i < LEDGER_PARTS && !has_jumps; i++) {
        uint64_t apart = f.l.seconds[i] > h->truth[i] ? f.l.seconds[i] - h->truth[i]
                                                      : h->truth[i] - f.l.seconds[i];

        if (apart > (h->has_reports ? h->n_attempts * (max_gap + 4u) : 0u)
            || (!h->has_reports && f.l.gpu_seconds[i] != h->gpu_truth[i]))
            fail_msg("seed %llu: %s is %llu/%llu and should be %llu/%llu",
                     (unsigned long long)h->seed, ledger_part_name((enum ledger_part)i),
                     (unsigned long long)f.l.seconds[i],
                     (unsigned long long)f.l.gpu_seconds[i],
                     (unsigned long long)h->truth[i],
                     (unsigned long long)h->gpu_truth[i]);
    }
}

/* Seldom looks are cheap. */
static void follow_many(bool has_reports, uint32_t max_gap, bool has_jumps)
{
    const char *one = getenv("RM_SEED"), *many = getenv("RM_SEEDS");
    uint64_t n = many ? strtoull(many, NULL, 10) : (max_gap == 1 ? 60 : 1000) / FEWER;
    static struct history h;

    for (uint64_t seed = 1; seed <= n; seed++) {
        history_make(&h, one ? strtoull(one, NULL, 10) : seed, has_reports);
        history_follow(&h, max_gap, has_jumps);
        if (one)
            return;
    }
}

UNIT_TEST(the_parts_are_those_of_the_pods_however_seldom_it_looks)
{
    follow_many(false, 1, false);
    follow_many(false, 30, false);
    follow_many(false, 1000, false);
}

UNIT_TEST(with_reports_the_parts_are_as_exact_as_reports_are_frequent)
{
    follow_many(true, 1, false);
    follow_many(true, 15, false);
}

UNIT_TEST(no_clock_breaks_the_sum)
{
    follow_many(false, 20, true);
    follow_many(true, 20, true);
}

UNIT_MAIN(NULL, NULL)
