/* SPDX-License-Identifier: Apache-2.0 */
/* core/live_job.c: states, their times, and rates. */
#include "tests/unit/unit.h"

#include "runtime/base/clock.h"
#include "runtime/launch/core/live_job.h"

#define WALL_US 1764460800000000ull

static struct live_rank rank_in_world(uint32_t rank, uint64_t age_s)
{
    struct live_rank r;

    live_rank_init(&r);
    r.rank = rank;
    r.state = LIVE_RANK_IN_WORLD;
    r.age_ms = age_s * 1000;
    return r;
}

static void job_take_all(struct live_job *j, uint64_t age_s)
{
    for (uint32_t i = 0; i < j->size; i++) {
        struct live_rank r = rank_in_world(i, age_s);

        live_job_take(j, &r);
    }
}

static uint64_t times_sum_ms(const struct live_times *t)
{
    return t->meeting_ms + t->starting_ms + t->training_ms + t->stalled_ms;
}

UNIT_TEST(times_of_all_states_add_up_to_the_age)
{
    struct live_job j;
    struct live_report r;
    struct live_stall stall = {.since_wall_us = WALL_US + 30 * 1000000u, .rank = -1};

    live_job_init(&j, 7 * NS_PER_S, WALL_US);
    live_job_meet(&j, 1, 2);
    live_job_advance(&j, 17 * NS_PER_S);
    assert_int_equal(live_job_start(&j, 4, 2), 0);
    live_job_advance(&j, 22 * NS_PER_S);
    job_take_all(&j, 0);
    assert_int_equal(j.state, LIVE_TRAINING);
    live_job_advance(&j, 47 * NS_PER_S); /* 40 s after the start of the run */
    live_job_set_stall(&j, &stall, WALL_US + 40 * 1000000u);
    assert_int_equal(j.state, LIVE_STALLED);
    live_job_advance(&j, 50 * NS_PER_S);
    live_job_set_stall(&j, NULL, 0);
    live_job_advance(&j, 60 * NS_PER_S);
    live_job_end(&j);
    live_job_advance(&j, 90 * NS_PER_S);
    live_job_report(&j, WALL_US, &r);
    assert_int_equal(r.state, LIVE_ENDING);
    assert_int_equal(r.times.meeting_ms, 10000);
    assert_int_equal(r.times.starting_ms, 5000);
    assert_int_equal(r.times.training_ms, 25000); /* 25 - 10 + 10 */
    assert_int_equal(r.times.stalled_ms, 13000);
    assert_int_equal(times_sum_ms(&r.times), 53000);
    live_job_release(&j);
}

/* A stall that began before the training did takes no time of other states. */
UNIT_TEST(a_stall_takes_at_most_the_time_of_this_training)
{
    struct live_job j;
    struct live_report r;
    struct live_stall stall = {.since_wall_us = WALL_US - 1000 * 1000000u, .rank = -1};

    live_job_init(&j, 0, WALL_US);
    assert_int_equal(live_job_start(&j, 1, 1), 0);
    live_job_advance(&j, 5 * NS_PER_S);
    job_take_all(&j, 0);
    live_job_advance(&j, 8 * NS_PER_S);
    live_job_set_stall(&j, &stall, WALL_US + 8 * 1000000u);
    live_job_report(&j, WALL_US, &r);
    assert_int_equal(r.times.starting_ms, 5000);
    assert_int_equal(r.times.training_ms, 0);
    assert_int_equal(r.times.stalled_ms, 3000);
    live_job_release(&j);
}

UNIT_TEST(a_job_trains_when_its_last_rank_has_a_page)
{
    struct live_job j;
    struct live_rank r = rank_in_world(1, 0), started, unknown = rank_in_world(9, 0);

    live_job_init(&j, 0, WALL_US);
    assert_int_equal(live_job_start(&j, 2, 2), 0);
    live_rank_init(&started);
    live_job_take(&j, &started);
    live_job_take(&j, &unknown);
    live_job_take(&j, &r);
    live_job_take(&j, &r);
    assert_int_equal(j.state, LIVE_STARTING);
    r.rank = 0;
    live_job_take(&j, &r);
    assert_int_equal(j.state, LIVE_TRAINING);
    live_job_meet(&j, 2, 3);
    assert_int_equal(j.state, LIVE_MEETING);
    assert_int_equal(j.n_ranks, 0);
    live_job_release(&j);
}

UNIT_TEST(ranks_that_do_not_use_the_runtime_train)
{
    struct live_job j;
    struct live_report r;

    live_job_init(&j, 0, WALL_US);
    live_job_advance(&j, 3 * NS_PER_S);
    assert_int_equal(live_job_start(&j, 2, 2), 0);
    live_job_advance(&j, LIVE_ALONE_NS);
    assert_int_equal(j.state, LIVE_STARTING);
    live_job_advance(&j, LIVE_ALONE_NS + 4 * NS_PER_S);
    assert_int_equal(j.state, LIVE_TRAINING);
    live_job_report(&j, WALL_US, &r);
    assert_int_equal(r.times.meeting_ms, 3000);
    assert_int_equal(r.times.starting_ms, 0);
    assert_int_equal(r.times.training_ms, 601000);
    live_job_release(&j);
}

/* Two ranks for 90 s; each step takes 0.5 s, of which 0.1 s is spent waiting. */
UNIT_TEST(rates_are_those_of_the_last_minute)
{
    struct live_job j;
    struct live_report report;

    live_job_init(&j, 0, WALL_US);
    assert_int_equal(live_job_start(&j, 2, 2), 0);
    for (uint64_t s = 0; s <= 90; s += 5) {
        live_job_advance(&j, s * NS_PER_S);
        for (uint32_t i = 0; i < 2; i++) {
            struct live_rank r = rank_in_world(i, s);

            r.steps = 2 * s;
            r.blocked_ns = s * NS_PER_S / 5;
            r.allreduce_ns = s * NS_PER_S / 10;
            r.bus_bytes = 1000000 * s;
            live_job_take(&j, &r);
        }
    }
    live_job_report(&j, WALL_US, &report);
    assert_int_equal(j.n_samples, LIVE_SAMPLES);
    assert_float_equal(report.rates.steps_per_s, 2, 1e-6);
    assert_float_equal(report.rates.blocked_share, 0.2, 1e-6);
    assert_float_equal(report.rates.bus_bytes_per_s, 1e7, 1);
    assert_true(report.progress.samples_per_s < 0);
    assert_int_equal(report.n_steps, 180);
    live_job_release(&j);
}

/* hvd.progress is called by rank 1 every 20 s. */
UNIT_TEST(progress_has_its_own_rate)
{
    struct live_job j;
    struct live_report report;

    live_job_init(&j, 0, WALL_US);
    assert_int_equal(live_job_start(&j, 2, 2), 0);
    for (uint64_t s = 0; s <= 100; s += 5) {
        struct live_rank r = rank_in_world(0, s);

        live_job_advance(&j, s * NS_PER_S);
        r.steps = s; /* is not used */
        live_job_take(&j, &r);
        r.rank = 1;
        if (s >= 20) {
            r.progress.step = (int64_t)(s / 20 * 60);
            r.progress.samples = r.progress.step * 32;
            r.progress.updated_wall_us = WALL_US + s / 20 * 20 * 1000000u;
        }
        live_job_take(&j, &r);
    }
    live_job_report(&j, WALL_US, &report);
    assert_int_equal(report.progress.step, 300);
    assert_float_equal(report.rates.steps_per_s, 3, 1e-6);
    assert_float_equal(report.progress.samples_per_s, 96, 1e-6);
    live_job_release(&j);
}

/* Elastic states commit on all ranks, also where hvd.progress is called on none. */
UNIT_TEST(a_commit_is_shown_without_progress)
{
    struct live_job j;
    struct live_report report;
    struct live_rank r = rank_in_world(1, 5);

    live_job_init(&j, 0, WALL_US);
    assert_int_equal(live_job_start(&j, 3, 3), 0);
    r.progress.commit_wall_us = WALL_US + 7;
    r.progress.commit_step = 40;
    live_job_take(&j, &r);
    live_job_report(&j, WALL_US, &report);
    assert_int_equal(report.progress.commit_wall_us, WALL_US + 7);
    assert_int_equal(report.progress.commit_step, 40);
    assert_int_equal(report.progress.step, -1);
    r.rank = 2; /* reports progress, without a commit */
    r.progress.step = 50;
    r.progress.updated_wall_us = WALL_US + 9;
    r.progress.commit_wall_us = 0;
    r.progress.commit_step = -1;
    live_job_take(&j, &r);
    live_job_report(&j, WALL_US, &report);
    assert_int_equal(report.progress.step, 50);
    assert_int_equal(report.progress.commit_step, 40);
    live_job_release(&j);
}

UNIT_TEST(a_counter_that_went_down_drops_the_samples)
{
    struct live_job j;
    struct live_report report;

    live_job_init(&j, 0, WALL_US);
    assert_int_equal(live_job_start(&j, 1, 1), 0);
    for (uint64_t s = 0; s <= 20; s += 5) {
        struct live_rank r = rank_in_world(0, s);

        live_job_advance(&j, s * NS_PER_S);
        r.steps = s == 20 ? 0 : 2 * s;
        live_job_take(&j, &r);
    }
    live_job_report(&j, WALL_US, &report);
    assert_int_equal(j.n_samples, 1);
    assert_true(report.rates.steps_per_s < 0);
    live_job_release(&j);
}

UNIT_TEST(a_rank_is_stopped_until_its_record_says_otherwise)
{
    struct live_job j;
    struct live_rank r = rank_in_world(1, 0);

    live_job_init(&j, 0, WALL_US);
    assert_int_equal(live_job_start(&j, 3, 3), 0);
    r.stopped_ms = LIVE_STOPPED_MS - 1;
    live_job_take(&j, &r);
    assert_null(live_job_stopped(&j));
    r.stopped_ms = LIVE_STOPPED_MS;
    live_job_take(&j, &r);
    live_job_take(&j, &r);
    assert_ptr_equal(live_job_stopped(&j), &j.ranks[1]);
    r.rank = 0;
    live_job_take(&j, &r);
    assert_ptr_equal(live_job_stopped(&j), &j.ranks[0]);
    r.stopped_ms = 0;
    live_job_take(&j, &r);
    assert_ptr_equal(live_job_stopped(&j), &j.ranks[1]);
    r.rank = 1;
    live_job_take(&j, &r);
    assert_null(live_job_stopped(&j));
    live_job_take(&j, &r);
    r.stopped_ms = LIVE_STOPPED_MS;
    live_job_take(&j, &r);
    live_job_meet(&j, 1, 3);
    assert_null(live_job_stopped(&j));
    live_job_release(&j);
}

/* Times in seconds: since when a tensor waits, since when a stall is known; 0: none. */
UNIT_TEST(a_reader_asks_again_when_a_stall_will_have_been_explained)
{
    static const struct {
        int64_t stall_ms;
        uint64_t waits_s, stall_s;
        enum live_cause cause;
        int64_t wanted_ms;
    } rows[] = {
        {-1, 0, 0, LIVE_CAUSE_UNKNOWN, -1},
        {-1, 10, 0, LIVE_CAUSE_UNKNOWN, -1},
        {60000, 0, LIVE_CAUSE_UNKNOWN, 0, 45000}, /* so that it sees one coming */
        {60000, 20, 0, LIVE_CAUSE_UNKNOWN, 40001 + LIVE_VERDICT_MS},
        {60000, 80, 0, LIVE_CAUSE_UNKNOWN,
         45000}, /* it is over, or the record is late */
        {60000, 20, 20, LIVE_CAUSE_LOCK, -1},
        {60000, 20, 20, LIVE_CAUSE_UNKNOWN, 5000}, /* it will be examined again */
        {2000, 0, LIVE_CAUSE_UNKNOWN, 0, 1500},
        {INT64_MAX, 0, 0, LIVE_CAUSE_UNKNOWN,
         INT64_MAX - INT64_MAX / 4}, /* a page may say anything */
    };
    const uint64_t S_US = 1000000u;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct live_stall stall = {
            .since_wall_us = WALL_US, .rank = -1, .cause = rows[i].cause};
        struct live_rank first = rank_in_world(0, 100), second = rank_in_world(1, 100);
        struct live_report r;
        struct live_job j;

        live_job_init(&j, 0, WALL_US);
        assert_int_equal(live_job_start(&j, 2, 2), 0);
        first.stall_ms = rows[i].stall_ms;
        first.waits_us = rows[i].waits_s ? WALL_US - rows[i].waits_s * S_US : 0;
        second.stall_ms = 1; /* only rank 0 knows */
        live_job_take(&j, &first);
        live_job_take(&j, &second);
        if (rows[i].stall_s)
            live_job_set_stall(&j, &stall, WALL_US);
        live_job_report(&j, WALL_US, &r);
        if (r.again_ms != rows[i].wanted_ms)
            fail_msg("row %zu: %lld ms", i, (long long)r.again_ms);
        live_job_release(&j);
    }
}

UNIT_TEST(a_leader_that_joins_later_counts_the_time_before)
{
    struct live_job j;
    struct live_report r;
    struct live_stall stall = {.since_wall_us = WALL_US - 60 * 1000000u, .rank = -1};

    live_job_init(&j, 7 * NS_PER_S, WALL_US);
    live_job_meet(&j, 0, 1);
    assert_int_equal(live_job_start(&j, 2, 2), 0);
    live_job_join(&j, 100000, 0);
    live_job_advance(&j, 9 * NS_PER_S);
    job_take_all(&j, 80);
    live_job_join(&j, 0, 80000);
    live_job_report(&j, WALL_US, &r);
    assert_int_equal(r.state, LIVE_TRAINING);
    assert_int_equal(r.run_wall_us, WALL_US - 100 * 1000000u);
    assert_int_equal(r.times.starting_ms, 22000);
    assert_int_equal(r.times.training_ms, 80000);
    live_job_set_stall(&j, &stall, WALL_US);
    live_job_report(&j, WALL_US, &r);
    assert_int_equal(r.times.training_ms, 20000);
    assert_int_equal(r.times.stalled_ms, 60000);
    live_job_join(&j, 0, 999000); /* a page may say anything */
    live_job_report(&j, WALL_US, &r);
    assert_int_equal(r.times.starting_ms, 0);
    assert_int_equal(times_sum_ms(&r.times), 102000);
    live_job_release(&j);
}

UNIT_MAIN(NULL, NULL)
