/* SPDX-License-Identifier: Apache-2.0 */
/* straggle.c: hosts, times, restarts and who is compared. */
#include "tests/unit/straggle_toy.h"

/* --- hosts --- */

static void check_slow_worker(uint32_t n, uint32_t slots, uint32_t worker)
{
    struct toy_job *t = toy_new(n + worker, n, slots);

    t->jitter = 0.02;
    toy_slow(t, worker * slots, slots, 1.3, 0, 1e9);
    toy_run(t, 120);
    assert_in_range(t->last.rank, worker * slots, (worker + 1) * slots - 1);
    assert_int_equal(t->last.worker, worker);
    assert_int_equal(t->last.n_ranks, slots);
    assert_true(t->last.is_worker);
    assert_true(fabs(t->last.cost_s - 0.03) < 0.006);
    toy_free(t);
}

UNIT_TEST(a_slow_host_is_named_with_all_its_ranks)
{
    check_slow_worker(16, 8, 1); /* half of the job */
    check_slow_worker(64, 8, 0);
    check_slow_worker(512, 4, 127);
    check_slow_worker(9, 4, 0); /* the last worker has one rank */
}

UNIT_TEST(one_slow_rank_is_not_its_host)
{
    struct toy_job *t = toy_new(1, 8, 4);

    t->jitter = 0.02;
    toy_slow(t, 5, 1, 1.3, 0, 1e9);
    toy_run(t, 120);
    assert_int_equal(t->last.rank, 5);
    assert_int_equal(t->last.worker, 1);
    assert_int_equal(t->last.n_ranks, 1);
    assert_false(t->last.is_worker);
    toy_free(t);
}

/* --- when --- */

UNIT_TEST(the_begin_of_the_slowness_is_known)
{
    struct toy_job *t = toy_new(2, 4, 1);

    t->jitter = 0.02;
    toy_slow(t, 3, 1, 1.3, 300, 1e9);
    toy_run(t, 420);
    assert_int_equal(t->last.rank, 3);
    assert_in_range(t->last.since_wall_us, BEGIN_WALL_US + 285000000,
                    BEGIN_WALL_US + 315000000);
    toy_free(t);
}

UNIT_TEST(what_lasts_a_minute_is_not_named)
{
    struct toy_job *t = toy_new(3, 4, 1);

    t->jitter = 0.02;
    for (uint32_t i = 0; i < MAX_RULES; i++)
        toy_slow(t, 2, 1, 1.5, 100 + 150 * i, 155 + 150 * i);
    toy_run(t, 1500);
    assert_true(t->named_s < 0);
    toy_free(t);
}

UNIT_TEST(what_is_slow_in_every_second_window_is_not_named)
{
    struct toy_job *t = toy_new(12, 4, 1);

    toy_slow(t, 2, 1, 1.045, 0, 1e9);
    for (uint32_t i = 0; i < MAX_RULES - 1; i++)
        toy_slow(t, 2, 1, 1.02, 20 * i, 20 * i + 10);
    toy_run(t, 140);
    assert_true(t->named_s < 0);
    toy_free(t);
}

UNIT_TEST(long_steps_take_longer)
{
    struct toy_job *t = toy_new(13, 4, 1);

    t->compute_s = 5;
    t->jitter = 0.02;
    toy_slow(t, 2, 1, 1.3, 0, 1e9);
    toy_run(t, 400); /* a window has ten steps */
    assert_true(t->named_s < 0);
    toy_run(t, 600);
    assert_int_equal(t->last.rank, 2);
    toy_free(t);
}

UNIT_TEST(ranks_that_are_slow_in_turn_are_not_named)
{
    struct toy_job *t = toy_new(4, 4, 1);

    t->jitter = 0.02;
    for (uint32_t i = 0; i < MAX_RULES; i++)
        toy_slow(t, i % 2, 1, 1.3, 30 * i, 30 * i + 30);
    toy_run(t, 30 * MAX_RULES + 60);
    assert_true(t->named_s < 0);
    toy_free(t);
}

UNIT_TEST(a_named_rank_is_forgotten_when_it_is_clearly_fast_again)
{
    struct toy_job *t = toy_new(5, 4, 2);

    t->jitter = 0.02;
    toy_slow(t, 1, 1, 1.3, 0, 300);
    toy_slow(t, 1, 1, 1.08, 300, 600); /* hardly worth it, but not over */
    toy_slow(t, 1, 1, 1.3, 620, 900);  /* a moment is not over either */
    toy_run(t, 900);
    assert_int_equal(t->last.rank, 1);
    assert_true(t->cleared_s < 0);
    toy_run(t, 930);
    assert_true(t->cleared_s < 0); /* it may come back */
    toy_run(t, 1020);
    assert_true(t->cleared_s > 0);
    toy_run(t, 2000);
    assert_int_equal(t->last.rank, -1);
    toy_free(t);
}

UNIT_TEST(a_much_slower_rank_takes_the_place)
{
    struct toy_job *t = toy_new(6, 4, 2);

    t->jitter = 0.02;
    toy_slow(t, 1, 1, 1.2, 0, 1e9);
    toy_run(t, 200);
    assert_int_equal(t->last.rank, 1);
    toy_slow(t, 2, 1, 1.25, 200, 400); /* not much */
    toy_run(t, 400);
    assert_int_equal(t->last.rank, 1);
    toy_slow(t, 2, 1, 2, 400, 1e9);
    toy_run(t, 520);
    assert_int_equal(t->last.rank, 2);
    assert_true(t->last.since_wall_us > BEGIN_WALL_US + 385000000);
    toy_free(t);
}

UNIT_TEST(a_long_checkpoint_is_not_slowness)
{
    struct toy_job *t = toy_new(7, 4, 1);

    t->jitter = 0.02;
    t->checkpoint_every_s = 100;
    t->checkpoint_s = 45;
    toy_run(t, 3600);
    assert_true(t->named_s < 0);
    toy_free(t);

    t = toy_new(8, 4, 1); /* and does not hide a slow rank */
    t->jitter = 0.02;
    t->checkpoint_every_s = 200;
    t->checkpoint_s = 45;
    toy_slow(t, 2, 1, 1.3, 0, 1e9);
    toy_run(t, 600);
    assert_int_equal(t->first.rank, 2);
    assert_int_equal(t->last.rank, 2);
    assert_true(t->cleared_s < 0);
    toy_free(t);
}

/* --- worlds and records --- */

static void toy_restart(struct toy_job *t) /* a new world: counters begin again */
{
    t->n_steps = t->n_ends = 0;
    memset(t->ready_s, 0, sizeof(t->ready_s));
    memset(t->blocked_s, 0, sizeof(t->blocked_s));
}

UNIT_TEST(a_new_world_begins_anew)
{
    struct toy_job *t = toy_new(9, 4, 1);

    t->jitter = 0.02;
    toy_slow(t, 3, 1, 1.3, 0, 1e9);
    toy_run(t, 120);
    assert_int_equal(t->last.rank, 3);
    toy_restart(t);
    toy_run(t, 160);
    assert_int_equal(t->last.rank, -1);
    toy_run(t, 280);
    assert_int_equal(t->last.rank, 3);
    toy_free(t);

    t = toy_new(10, 8, 1); /* restarts name nobody */
    t->jitter = 0.02;
    for (int i = 1; i < 60; i++) {
        toy_run(t, 37 * i);
        toy_restart(t);
    }
    assert_true(t->named_s < 0);
    toy_free(t);
}

UNIT_TEST(ranks_may_come_late)
{
    struct toy_job *t = toy_new(11, 4, 1);

    t->jitter = 0.02;
    toy_slow(t, 0, 1, 1.3, 0, 1e9);
    t->send_at_s[0] = 200; /* the slow one */
    t->send_at_s[1] = 100;
    toy_run(t, 200);
    assert_true(t->named_s < 0);
    toy_run(t, 320);
    assert_int_equal(t->last.rank, 0);
    toy_free(t);
}

#define IN LIVE_RANK_IN_WORLD

/* Records of ranks as the table has them, every 5 s; rank 1 would be slow. */
struct fed_ranks {
    uint32_t n;
    uint64_t batches[3], ready_ms[3]; /* per second */
    enum live_rank_state states[3];
};

static int32_t
fed_run(const struct fed_ranks *f, uint64_t from_s, uint64_t to_s, struct straggle *s)
{
    int32_t rank = -1;

    for (uint64_t at = from_s; at < to_s; at += LIVE_EVERY_S) {
        for (uint32_t i = 0; i < f->n; i++) {
            struct live_rank r = {.rank = i,
                                  .state = f->states[i],
                                  .age_ms = at * 1000,
                                  .n_batches = at * f->batches[i],
                                  .steps = at * f->batches[i],
                                  .step_ns = at * NS_PER_S,
                                  .ready_ns = at * f->ready_ms[i] * NS_PER_MS,
                                  .progress = {.step = -1}};
            straggle_feed(s, &r);
        }
        rank = straggle_check(s, at * NS_PER_S, at * 1000000)->rank;
    }
    return rank;
}

UNIT_TEST(who_is_compared)
{
    static const struct {
        struct fed_ranks f;
        int32_t rank;
    } v[] = {
        {{3, {10, 10, 10}, {300, 100, 300}, {IN, IN, IN}}, 1},
        {{2, {10, 10}, {300, 100}, {IN, IN}}, 1},
        {{1, {10}, {100}, {IN}}, -1},
        /* it has other work */
        {{3, {10, 15, 10}, {300, 100, 300}, {IN, IN, IN}}, -1},
        /* it has joined: no data left */
        {{3, {10, 10, 10}, {300, 0, 300}, {IN, IN, IN}}, -1},
        /* it is gone */
        {{3, {10, 10, 10}, {300, 100, 300}, {IN, LIVE_RANK_EXITED, IN}}, -1},
        {{3, {10, 10, 10}, {300, 100, 300}, {IN, LIVE_RANK_STARTED, IN}}, -1},
        /* a twentieth of a step of 100 ms is 5 ms */
        {{3, {10, 10, 10}, {300, 240, 300}, {IN, IN, IN}}, 1},
        {{3, {10, 10, 10}, {300, 260, 300}, {IN, IN, IN}}, -1},
        /* less than a millisecond of each step of 4 ms */
        {{3, {250, 250, 250}, {600, 400, 600}, {IN, IN, IN}}, -1},
        {{3, {250, 250, 250}, {600, 300, 600}, {IN, IN, IN}}, 1},
        /* no batches at all */
        {{3, {0, 0, 0}, {300, 100, 300}, {IN, IN, IN}}, -1},
    };

    for (size_t i = 0; i < ARRAY_LEN(v); i++) {
        struct straggle s;
        struct err err = ERR_INIT;
        int32_t rank;

        assert_int_equal(straggle_init(&s, v[i].f.n, 1, &err), 0);
        rank = fed_run(&v[i].f, 0, 200, &s);
        if (rank != v[i].rank)
            fail_msg("row %zu: rank %d", i, (int)rank);
        straggle_release(&s);
    }
}

UNIT_TEST(without_news_a_verdict_becomes_old)
{
    static const struct fed_ranks f = {2, {10, 10}, {300, 100}, {IN, IN}};
    struct straggle s;
    struct err err = ERR_INIT;

    assert_int_equal(straggle_init(&s, 2, 1, &err), 0);
    assert_int_equal(fed_run(&f, 0, 200, &s), 1);
    for (uint64_t at = 200; at < 1000; at += 5)
        assert_int_equal(straggle_check(&s, at * NS_PER_S, 0)->rank, 1);
    for (uint64_t at = 1000; at < 2000; at += 5)
        (void)straggle_check(&s, at * NS_PER_S, 0);
    assert_int_equal(s.verdict.rank, -1);
    straggle_release(&s);
}

UNIT_TEST(impossible_worlds_and_ranks_are_refused)
{
    struct straggle s;
    struct live_rank r = {.rank = 2, .state = LIVE_RANK_IN_WORLD};
    struct err err = ERR_INIT;

    assert_int_equal(straggle_init(&s, 0, 1, &err), -EINVAL);
    assert_int_equal(straggle_init(&s, 1, 0, &err), -EINVAL);
    assert_int_equal(straggle_init(&s, STRAGGLE_MAX_RANKS + 1, 1, &err), -EINVAL);
    for (long i = 0; i < 2; i++) {
        mem_fail_after(i);
        assert_int_equal(straggle_init(&s, 2, 1, &err), -ENOMEM);
    }
    mem_fail_after(-1);
    assert_int_equal(straggle_init(&s, 2, 1, &err), 0);
    straggle_feed(&s, &r); /* not a rank of this job */
    r.rank = UINT32_MAX;
    straggle_feed(&s, &r);
    assert_int_equal(straggle_check(&s, NS_PER_S, 0)->rank, -1);
    straggle_release(&s);
    straggle_release(&s);
}

/* 10,000 ranks: the time is printed, not checked. */
UNIT_TEST(ten_thousand_ranks_cost_little)
{
    enum { N = 10000 };
    struct straggle s;
    struct err err = ERR_INIT;
    uint64_t feed_ns = 0, check_ns = 0, from;
    uint32_t n = 0;

    assert_int_equal(straggle_init(&s, N, 8, &err), 0);
    for (uint64_t at = 0; at < 200; at += LIVE_EVERY_S, n++) {
        from = clock_now_ns();
        for (uint32_t i = 0; i < N; i++) {
            struct live_rank r = {.rank = i,
                                  .state = LIVE_RANK_IN_WORLD,
                                  .age_ms = at * 1000,
                                  .n_batches = at * 10,
                                  .ready_ns =
                                      at * (i == 7777 ? 100 : 300 + i % 7) * NS_PER_MS,
                                  .steps = at * 10,
                                  .step_ns = at * NS_PER_S};
            straggle_feed(&s, &r);
        }
        feed_ns += clock_now_ns() - from;
        from = clock_now_ns();
        (void)straggle_check(&s, at * NS_PER_S, at * 1000000);
        check_ns += clock_now_ns() - from;
    }
    assert_int_equal(s.verdict.rank, 7777);
    printf("# %llu ns for a record, %.3f ms for a check\n",
           (unsigned long long)(feed_ns / N / n), (double)check_ns / n / 1e6);
    straggle_release(&s);
}

UNIT_MAIN(NULL, NULL)
