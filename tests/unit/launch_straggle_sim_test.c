/* SPDX-License-Identifier: Apache-2.0 */
/* straggle.c: thousands of simulated jobs. SIM_SEEDS sets how many, SIM_SEED runs one. */
#include "tests/unit/straggle_toy.h"

enum { SEEDS = 1000 };

static uint64_t from_env(const char *name, uint64_t otherwise)
{
    const char *v = getenv(name);

    return v ? strtoull(v, NULL, 10) : otherwise;
}

/* --- equal ranks --- */

UNIT_TEST(equal_ranks_are_never_named_in_an_hour)
{
    const uint64_t one = from_env("SIM_SEED", 0);
    const uint64_t n = from_env("SIM_SEEDS", SEEDS) / FEWER;
    uint32_t n_named = 0;

    for (uint64_t seed = one ? one : 1; seed <= (one ? one : n); seed++) {
        struct seeded r = {seed};
        uint32_t slots = 1u << seeded_below(&r, 4);
        uint32_t ranks = (uint32_t)random_scale(&r, 2, 40);
        struct toy_job *t;

        if (seed % 100 == 0)
            ranks = MAX_RANKS;
        t = toy_new(seed, ranks, slots);
        toy_make_random(t, random_scale(&r, ranks > 40 ? 0.5 : 0.03, 4));
        toy_run(t, 3600);
        if (t->named_s >= 0 || one) {
            toy_print(t, seed);
            n_named += t->named_s >= 0;
        }
        toy_free(t);
    }
    assert_int_equal(n_named, 0);
}

/* --- slow ranks --- */

/* A job with a moment of at most a second per step, and jitter that ten steps average
 * to less than the slowness. */
static struct toy_job *toy_new_tame(uint64_t seed, double most_jitter)
{
    struct seeded r = {seed ^ 0x5555};
    uint32_t n = (uint32_t)random_scale(&r, 2, seed % 50 == 0 ? 513 : 33);
    double step_s = random_scale(&r, n > 64 ? 0.2 : 0.03, 0.9);
    struct toy_job *t = toy_new(seed, n, 1u << seeded_below(&r, 4));

    toy_make_random(t, step_s);
    if (!t->has_plan && !t->reports) /* a window has 40 batches */
        step_s = fmin(step_s, 0.2);
    t->move_s = fmin(t->move_s, 0.25 * step_s);
    t->compute_s = step_s - t->move_s;
    t->jitter = random_scale(&r, 0.003, most_jitter);
    t->common_jitter = random_scale(&r, 0.003, 0.1);
    t->checkpoint_every_s = 0;
    t->drift = fmin(t->drift, most_jitter / 4);
    t->pause_s = fmin(t->pause_s, 0.2 * most_jitter * t->pause_every_s);
    /* else its cost is less than what can be known (straggle.c) */
    t->reports |= !t->has_plan && !t->is_waited;
    t->overlaps |= !t->is_waited;
    return t;
}

static void check_slow(double factor, double most_jitter, bool is_waited)
{
    const uint64_t one = from_env("SIM_SEED", 0);
    const uint64_t n = from_env("SIM_SEEDS", SEEDS) / FEWER / 2;
    uint32_t n_bad = 0, n_wrong_cost = 0;
    double latest_s = 0;

    for (uint64_t seed = one ? one : 1; seed <= (one ? one : n); seed++) {
        struct toy_job *t = toy_new_tame(seed, most_jitter);
        uint32_t slow = seeded_below(&t->random, t->n);
        double from_s = random_between(&t->random, 0, 200);
        double cost_s = t->compute_s * (factor - 1);

        if (is_waited) /* then the cost is exact */
            t->is_waited = t->has_plan = true;
        toy_slow(t, slow, 1, factor, from_s, 1e9);
        toy_run(t, from_s + 120);
        latest_s = fmax(latest_s, t->named_s - from_s);
        if (t->named_s < from_s || t->first.rank != (int32_t)slow
            || t->first.worker != slow / t->slots) {
            printf("# rank %u, slow from %.0f s\n", slow, from_s);
            toy_print(t, seed);
            n_bad++;
        } else if (is_waited && fabs(t->last.cost_s / cost_s - 1) > 0.3) {
            printf("# %.4f s, not %.4f s\n", t->last.cost_s, cost_s);
            toy_print(t, seed);
            n_wrong_cost++;
        }
        toy_free(t);
    }
    printf("# named after %.0f s at most\n", latest_s);
    assert_int_equal(n_bad, 0);
    assert_int_equal(n_wrong_cost, 0);
}

UNIT_TEST(a_rank_slower_by_30_percent_is_named_within_two_minutes)
{
    check_slow(1.3, 0.1, false);
}

UNIT_TEST(its_cost_is_known_where_the_program_waits)
{
    check_slow(1.3, 0.1, true);
}

UNIT_TEST(a_rank_slower_by_10_percent_is_named_within_two_minutes)
{
    check_slow(1.1, 0.02, true);
}

UNIT_MAIN(NULL, NULL)
