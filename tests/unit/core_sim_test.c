/* SPDX-License-Identifier: Apache-2.0 */
/* The negotiation under a simulated cluster: thousands of seeds, each a world of its
 * own with its own script and its own order of events. SIM_SEEDS sets how many,
 * SIM_SEED runs one, SIM_TRACE=1 prints its events. */
#include "tests/lib/sim_load.h"
#include "tests/lib/sim_run.h"
#include "tests/lib/sim_sets.h"

enum { SEEDS = 1500 / FEWER };

enum { LINK_NONE, LINK_UP, LINK_DOWN };

struct totals {
    uint64_t n_events, n_planned, n_plans, n_leaves, n_hits, n_quiet;
};

static uint64_t from_env(const char *name, uint64_t otherwise)
{
    const char *v = getenv(name);

    return v ? strtoull(v, NULL, 10) : otherwise;
}

static void add_up(struct totals *t, const struct sim *s)
{
    t->n_events += s->now;
    t->n_quiet += s->n_quiet_steps;
    for (uint32_t r = 0; r < s->cfg.n_ranks; r++) {
        struct member_counts c = member_counts(s->ranks[r].m);

        t->n_planned += c.n_planned;
        t->n_plans += c.n_plans;
        t->n_leaves += c.n_leaves;
        t->n_hits += c.n_hits;
    }
}

static bool run_seed(uint64_t seed, struct totals *t)
{
    struct sim *s = seed % 4 == 0   ? tight_sim_of_seed(seed)
                    : seed % 4 == 3 ? parallel_sim_of_seed(seed)
                    : seed % 8 == 1 ? grouped_sim_of_seed(seed)
                                    : sim_of_seed(seed);
    bool is_good;

    if (sim_start(s) == 0)
        sim_run(s, UINT64_MAX);
    sim_check_end(s);
    is_good = !sim_is_over(s);
    if (!is_good)
        sim_dump(s);
    add_up(t, s);
    sim_free(s);
    return is_good;
}

UNIT_TEST(any_seed_comes_to_its_end)
{
    struct totals t = {0};
    uint64_t one = from_env("SIM_SEED", 0), n = from_env("SIM_SEEDS", SEEDS), bad = 0;

    if (one > 0) {
        assert_true(run_seed(one, &t));
        return;
    }
    for (uint64_t seed = 1; seed <= n && bad < 5; seed++)
        bad += !run_seed(seed, &t);
    print_message("# %llu events, %llu ops as bits, %llu planned; %llu plans, %llu "
                  "left; %llu steady steps without a message\n",
                  (unsigned long long)t.n_events, (unsigned long long)t.n_hits,
                  (unsigned long long)t.n_planned, (unsigned long long)t.n_plans,
                  (unsigned long long)t.n_leaves, (unsigned long long)t.n_quiet);
    assert_int_equal(bad, 0);
    assert_true(n < SEEDS || (t.n_hits && t.n_planned && t.n_leaves && t.n_quiet));
}

/* --- a rank dies, a link is cut, memory is out --- */

/* Three ranks, a plan, a set, a metric, transfers, a join; short. */
static struct sim *short_sim(uint64_t seed)
{
    struct load l = {.s = sim_new(seed), .groups_in = 4};
    struct sim *s = l.s;
    struct sim_spec metric;

    s->cfg = (struct negotiate_config){
        .cache_capacity = 64, .fusion_bytes = 200, .may_freeze = true};
    load_world(&l, 3);
    load_make_model(&l);
    (void)load_add_set(&l, load_add_step(&l), (struct sim_set){.mask = 6});
    load_add_step(&l)->waits = true;
    for (uint32_t i = 0; i < 7; i++)
        (void)load_model_step(&l);
    metric = load_make_spec(&l, "metric", 0);
    (void)load_add_op(&l, load_model_step(&l), &metric);
    load_set_op(&l, load_model_step(&l), 1, 0);
    load_add_transfers(&l, load_model_step(&l), 3);
    load_make_odd(&l, load_model_step(&l));
    load_joins(&l);
    return s;
}

/* One rank stops, or a link loses all later messages. The other ranks come to a halt,
 * still receive messages, and release everything. */
static void survivors_are_stopped(struct sim *s)
{
    sim_run(s, UINT64_MAX);
    for (uint32_t r = 0; r < s->cfg.n_ranks && !sim_is_over(s); r++)
        if (s->ranks[r].down.head && !s->ranks[r].is_dead)
            sim_wrong(s, "rank %u does not receive any more", r);
    if (sim_is_over(s))
        sim_dump(s);
    assert_int_equal(s->rc, 0);
    assert_string_equal(s->why, "");
}

/* The short script of this seed, where either a rank dies after `at` events or the link
 * loses what it sends after `at` messages. False: it was over before. */
static bool disturbed_world_stops(uint64_t seed, uint32_t rank, int link, uint64_t at)
{
    struct sim *s = short_sim(seed);
    struct sim_rank *r = &s->ranks[rank];
    struct sim_link *l = link == LINK_UP ? &r->up : &r->down;
    bool is_hit;

    assert_int_equal(sim_start(s), 0);
    if (link == LINK_NONE) {
        s->kill_rank = rank;
        s->kill_at = at;
    } else {
        l->cut_after = (uint32_t)at;
    }
    survivors_are_stopped(s);
    is_hit = link == LINK_NONE ? r->is_dead : l->n_sent > at;
    if (!is_hit)
        sim_check_end(s);
    assert_string_equal(s->why, "");
    sim_free(s);
    return is_hit;
}

UNIT_TEST(a_rank_may_die_at_any_event)
{
    uint64_t n_seeds = from_env("SIM_SEEDS", SEEDS) / 150 + 1, n_deaths = 0, at;

    for (uint64_t seed = 1; seed <= n_seeds; seed++)
        for (uint32_t rank = 0; rank < 3; rank++)
            for (at = 1; disturbed_world_stops(seed, rank, LINK_NONE, at); n_deaths++)
                at += 1 + seeded_below(&(struct seeded){at}, 4);
    print_message("# %llu deaths\n", (unsigned long long)n_deaths);
}

UNIT_TEST(a_link_may_be_cut_after_any_message)
{
    uint64_t n_seeds = from_env("SIM_SEEDS", SEEDS) / 150 + 1, n_cuts = 0, at;

    for (uint64_t seed = 1; seed <= n_seeds; seed++)
        for (uint32_t rank = 1; rank < 3; rank++)
            for (int link = LINK_UP; link <= LINK_DOWN; link++)
                for (at = 0; disturbed_world_stops(seed, rank, link, at); at++)
                    n_cuts++;
    print_message("# %llu cuts\n", (unsigned long long)n_cuts);
}

/* Every allocation fails once: the world gets an error, or continues without the memory
 * (the response cache). */
UNIT_TEST(memory_may_be_out_at_any_allocation)
{
    uint64_t n_seeds = from_env("SIM_SEEDS", SEEDS) / 500 + 1, n_hits = 0, n_done = 0;

    for (uint64_t seed = 1; seed <= n_seeds; seed++) {
        bool was_hit = true;

        for (long n = 0; was_hit; n++) {
            struct sim *s = short_sim(seed);

            mem_fail_after(n);
            if (sim_start(s) == 0)
                sim_run(s, UINT64_MAX);
            was_hit = mem_fail_fired();
            mem_fail_after(-1);
            if (s->rc == 0)
                sim_check_end(s);
            if (s->why[0])
                sim_dump(s);
            assert_string_equal(s->why, "");
            assert_true(s->rc == 0 || (was_hit && s->rc == -ENOMEM));
            n_hits += was_hit;
            n_done += was_hit && s->rc == 0;
            sim_free(s);
        }
        assert_true(n_hits > 100);
    }
    print_message("# %llu allocations failed, the world continued after %llu of them\n",
                  (unsigned long long)n_hits, (unsigned long long)n_done);
}

UNIT_MAIN(NULL, NULL)
