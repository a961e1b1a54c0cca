/* SPDX-License-Identifier: Apache-2.0 */
/* A job for the tests of straggle.c: what its ranks count, second by second, with jitter,
 * pauses, checkpoints, drift and records that are lost or late. */
#ifndef TESTS_UNIT_STRAGGLE_TOY_H
#define TESTS_UNIT_STRAGGLE_TOY_H

#include <math.h>

#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/launch/core/straggle.h"
#include "tests/unit/seeded.h"
#include "tests/unit/unit.h"

enum { MAX_RANKS = 512, MAX_RULES = 8, CHECK_S = 5 };
static const uint64_t BEGIN_WALL_US = 1000000000000000;

/* --- random numbers --- */

static inline double random_between(struct seeded *r, double a, double b)
{
    return a + (b - a) * (double)(seeded_next(r) >> 11) / 9007199254740992.0;
}

static inline double random_scale(struct seeded *r, double a, double b)
{
    return exp(random_between(r, log(a), log(b)));
}

static inline bool random_is(struct seeded *r, double probability)
{
    return random_between(r, 0, 1) < probability;
}

/* Nearly normal: four uniform numbers of one word. */
static inline double random_normal(struct seeded *r)
{
    uint64_t v = seeded_next(r);
    double sum = (double)(v & 0xffff) + (double)(v >> 16 & 0xffff)
                 + (double)(v >> 32 & 0xffff) + (double)(v >> 48);

    return (sum / 65536 - 2) * 1.7320508;
}

/* Nearly lognormal. */
static inline double random_jitter(struct seeded *r, double sigma)
{
    double x = sigma * random_normal(r);

    return 1 + x + x * x / 2 + x * x * x / 6;
}

/* --- a job --- */

struct toy_rule { /* of ranks [first, first + n), from a time to a time */
    uint32_t first, n;
    double factor, from_s, to_s;
};

struct toy_job {
    struct seeded random;
    uint32_t n, slots;
    /* a step */
    double compute_s, move_s; /* move_s: of all batches */
    uint32_t n_batches;
    bool overlaps;  /* batches are submitted during the backward pass */
    bool has_plan;  /* steps are counted */
    bool is_waited; /* the program waits in the runtime */
    bool reports;   /* it calls hvd.progress */
    /* what disturbs it */
    double jitter, common_jitter, drift;
    double pause_every_s, pause_s; /* of each rank: garbage collection, kernel */
    double checkpoint_every_s, checkpoint_s; /* on rank 0 */
    double loss;                             /* of records */
    struct toy_rule rules[MAX_RULES];
    uint32_t n_rules;
    /* its state */
    double now_s, next_checkpoint_s, next_drift_s, next_check_s;
    uint64_t n_steps, n_ends;
    double ready_s[MAX_RANKS], blocked_s[MAX_RANKS], own_s[MAX_RANKS],
        drifts[MAX_RANKS], pause_at_s[MAX_RANKS], send_at_s[MAX_RANKS];
    struct straggle s;
    /* what was seen */
    double named_s, cleared_s; /* the first times; negative: never */
    struct straggle_verdict first, last;
};

static inline struct toy_job *toy_new(uint64_t seed, uint32_t n, uint32_t slots)
{
    struct toy_job *t = calloc(1, sizeof(*t));
    struct err err = ERR_INIT;

    assert_non_null(t);
    t->random.state = seed * 7919;
    t->n = n;
    t->slots = slots;
    t->n_batches = 1;
    t->has_plan = t->is_waited = true;
    t->compute_s = 0.1;
    t->move_s = 0.002;
    t->named_s = t->cleared_s = -1;
    t->first.rank = t->last.rank = -1;
    assert_int_equal(straggle_init(&t->s, n, slots, &err), 0);
    return t;
}

static inline void toy_free(struct toy_job *t)
{
    straggle_release(&t->s);
    free(t);
}

/* Any job without a slow rank. */
static inline void toy_make_random(struct toy_job *t, double step_s)
{
    struct seeded *r = &t->random;
    double move = random_scale(r, 0.002, 0.6);

    t->compute_s = step_s * (1 - move);
    t->move_s = step_s * move;
    t->n_batches = random_is(r, 0.4) ? 1 : 1 + seeded_below(r, 12);
    t->overlaps = random_is(r, 0.7);
    t->has_plan = random_is(r, 0.8);
    t->is_waited = random_is(r, 0.6);
    t->reports = random_is(r, 0.3);
    t->jitter = random_scale(r, 0.003, 0.15);
    if (random_is(r, 0.1)) /* the data's length differs */
        t->jitter = 0.3;
    t->common_jitter = random_scale(r, 0.003, 0.3);
    t->drift = random_scale(r, 0.001, 0.012);
    t->pause_every_s = random_scale(r, 2, 200);
    t->pause_s = random_scale(r, 0.005, 0.4);
    if (random_is(r, 0.7)) {
        /* not in each window: that would be slowness */
        t->checkpoint_every_s = random_scale(r, 60, 900);
        t->checkpoint_every_s =
            fmax(t->checkpoint_every_s,
                 step_s * (t->has_plan || t->reports ? 40 : 160 / t->n_batches));
        t->checkpoint_s = random_scale(r, 1, 40);
    }
    t->loss = random_is(r, 0.5) ? 0 : random_between(r, 0, 0.1);
    t->next_checkpoint_s = t->checkpoint_every_s * random_between(r, 0, 1);
    for (uint32_t i = 0; i < t->n; i++)
        t->pause_at_s[i] = t->pause_every_s * random_between(r, 0, 2);
    for (uint32_t w = 0; w * t->slots < t->n; w++)
        t->send_at_s[w] = random_between(r, 0, LIVE_EVERY_S);
}

static inline double toy_factor(const struct toy_job *t, uint32_t rank)
{
    double f = 1;

    for (uint32_t i = 0; i < t->n_rules; i++) {
        const struct toy_rule *k = &t->rules[i];

        if (rank >= k->first && rank < k->first + k->n && t->now_s >= k->from_s
            && t->now_s < k->to_s)
            f *= k->factor;
    }
    return f;
}

/* Seconds that the rank computes in this step. */
static inline double toy_compute(struct toy_job *t, uint32_t rank, double common)
{
    double c = common * (1 + t->drifts[rank]) * random_jitter(&t->random, t->jitter)
               * toy_factor(t, rank);

    if (t->pause_every_s > 0 && t->now_s >= t->pause_at_s[rank]) {
        c += t->pause_s * random_between(&t->random, 0.3, 1);
        t->pause_at_s[rank] =
            t->now_s + t->pause_every_s * random_between(&t->random, 0.05, 1.95);
    }
    return c;
}

/* All ranks leave a step together. In batch j of a step a rank is late by the part f[j]
 * of its computing time; batches that overlap have growing parts. */
static inline void toy_step(struct toy_job *t)
{
    const double common = t->compute_s * random_jitter(&t->random, t->common_jitter);
    const double move_s = t->move_s / t->n_batches;
    double slowest_s = 0, ends_s = 0, end_s = 0, parts = 0;

    for (uint32_t i = 0; t->now_s >= t->next_drift_s && i < t->n; i++)
        t->drifts[i] = 0.8 * t->drifts[i] + 0.6 * t->drift * random_normal(&t->random);
    if (t->now_s >= t->next_drift_s)
        t->next_drift_s = t->now_s + 20;
    for (uint32_t i = 0; i < t->n; i++)
        t->own_s[i] = toy_compute(t, i, common);
    if (t->checkpoint_every_s > 0 && t->now_s >= t->next_checkpoint_s) {
        t->own_s[0] += t->checkpoint_s;
        t->next_checkpoint_s = t->now_s + t->checkpoint_every_s + t->checkpoint_s;
    }
    for (uint32_t i = 0; i < t->n; i++)
        slowest_s = t->own_s[i] > slowest_s ? t->own_s[i] : slowest_s;
    for (uint32_t j = 1; j <= t->n_batches; j++) {
        double f = 1.0 / t->n_batches;

        if (t->overlaps) {
            f = (1 + 2.0 * j / t->n_batches) / 3; /* the forward pass is a third */
            end_s = end_s > f * slowest_s ? end_s : f * slowest_s;
            end_s += move_s;
            ends_s += end_s;
        } else {
            end_s += f * slowest_s + move_s;
            ends_s += f * slowest_s + move_s; /* since the rank continued */
        }
        parts += f;
    }
    for (uint32_t i = 0; i < t->n; i++) {
        t->ready_s[i] += ends_s - parts * t->own_s[i];
        t->blocked_s[i] += end_s - t->own_s[i];
    }
    t->now_s += end_s;
    t->n_steps++;
    t->n_ends += t->n_batches;
}

static inline void toy_send(struct toy_job *t, uint32_t worker)
{
    for (uint32_t i = worker * t->slots; i < t->n && i < (worker + 1) * t->slots; i++) {
        struct live_rank r = {
            .rank = i,
            .state = LIVE_RANK_IN_WORLD,
            .age_ms = (uint64_t)(t->now_s * 1e3) + 1,
            .steps = t->has_plan ? t->n_steps : 0,
            .step_ns = t->has_plan ? (uint64_t)(t->now_s * 1e9) : 0,
            .n_batches = t->n_ends,
            .ready_ns = (uint64_t)(t->ready_s[i] * 1e9),
            .progress = {.step = t->reports ? (int64_t)t->n_steps : -1}};

        if (t->is_waited)
            r.blocked_ns = (uint64_t)(t->blocked_s[i] * 1e9);
        if (!random_is(&t->random, t->loss))
            straggle_feed(&t->s, &r);
    }
}

static inline void toy_check(struct toy_job *t)
{
    const struct straggle_verdict *v = straggle_check(
        &t->s, (uint64_t)(t->now_s * 1e9), BEGIN_WALL_US + (uint64_t)(t->now_s * 1e6));

    if (v->rank >= 0 && t->named_s < 0) {
        t->named_s = t->now_s;
        t->first = *v;
    }
    if (v->rank < 0 && t->named_s >= 0 && t->cleared_s < 0)
        t->cleared_s = t->now_s;
    t->last = *v;
}

static inline void toy_run(struct toy_job *t, double to_s)
{
    while (t->now_s < to_s) {
        toy_step(t);
        for (uint32_t w = 0; w * t->slots < t->n; w++)
            if (t->now_s >= t->send_at_s[w]) {
                toy_send(t, w);
                t->send_at_s[w] = t->now_s + LIVE_EVERY_S;
            }
        if (t->now_s >= t->next_check_s) {
            toy_check(t);
            t->next_check_s = t->now_s + CHECK_S;
        }
    }
}

static inline void toy_slow(struct toy_job *t,
                            uint32_t first,
                            uint32_t n,
                            double factor,
                            double from_s,
                            double to_s)
{
    t->rules[t->n_rules++] = (struct toy_rule){first, n, factor, from_s, to_s};
}

static inline void toy_print(const struct toy_job *t, uint64_t seed)
{
    printf(
        "# seed %llu: %u ranks of %u, step %.3f s + %.3f s, %u batches%s%s%s%s, jitter "
        "%.3f, common %.3f, drift %.3f, pauses %.3f s every %.0f s, checkpoints %.0f s "
        "every %.0f s, loss %.2f; named %d at %.0f s: %.4f s, %.3f of a step, %u "
        "ranks; "
        "cleared at %.0f s\n",
        (unsigned long long)seed, t->n, t->slots, t->compute_s, t->move_s, t->n_batches,
        t->overlaps ? " overlap" : "", t->has_plan ? " plan" : "",
        t->is_waited ? " waited" : "", t->reports ? " reports" : "", t->jitter,
        t->common_jitter, t->drift, t->pause_s, t->pause_every_s, t->checkpoint_s,
        t->checkpoint_every_s, t->loss, (int)t->first.rank, t->named_s, t->first.cost_s,
        t->first.share, t->first.n_ranks, t->cleared_s);
}

#endif
