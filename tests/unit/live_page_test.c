/* SPDX-License-Identifier: Apache-2.0 */
/* Records of ranks from their pages, also from pages that a program has spoilt. */
#include <math.h>

#include "tests/unit/unit.h"

#include "runtime/live/live_page.h"

static struct stats_page page_new(void)
{
    struct stats_page p = {.magic = STATS_MAGIC,
                           .version = STATS_VERSION,
                           .n_words = STATS_N_WORDS,
                           .rank = 3,
                           .pid = 77,
                           .begin_wall_us = 5000000};
    struct stats_progress unknown;

    stats_progress_init(&unknown);
    stats_page_put_progress(&p, &unknown);
    return p;
}

static struct live_rank record_of(const struct stats_page *p, uint64_t now_wall_us)
{
    struct live_rank r;

    memset(&r, 0x55, sizeof(r));
    live_page_fill(p, now_wall_us, &r);
    return r;
}

UNIT_TEST(counters_have_the_units_of_the_page)
{
    static const struct {
        enum stats_id word;
        size_t field;
    } same[] = {
        {STATS_STEPS, offsetof(struct live_rank, steps)},
        {STATS_STEP_NS, offsetof(struct live_rank, step_ns)},
        {STATS_BLOCKED_NS, offsetof(struct live_rank, blocked_ns)},
        {STATS_BUS_BYTES, offsetof(struct live_rank, bus_bytes)},
        {STATS_ALLREDUCE_NS, offsetof(struct live_rank, allreduce_ns)},
        {STATS_READY_NS, offsetof(struct live_rank, ready_ns)},
        {STATS_BATCHES, offsetof(struct live_rank, n_batches)},
    };
    struct stats_page p = page_new();
    struct live_rank r;

    for (size_t i = 0; i < STATS_N_WORDS; i++)
        atomic_store(&p.words[i], 1000 + i);
    r = record_of(&p, 7500999);
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
        uint64_t v;

        memcpy(&v, (const char *)&r + same[i].field, sizeof(v));
        assert_int_equal(v, 1000 + same[i].word);
    }
    assert_int_equal(r.rank, 3);
    assert_int_equal(r.pid, 77);
    assert_int_equal(r.age_ms, 2500);
    assert_int_equal(record_of(&p, 4000000).age_ms, 0); /* the clock was set back */
    assert_int_equal(r.rss_bytes, 0x5555555555555555);  /* is not the page's */
    atomic_store(&p.words[STATS_STALL_NS], 60 * 1000000000ull);
    atomic_store(&p.words[STATS_WAITS_NS], 7000000999ull);
    assert_int_equal(record_of(&p, 0).stall_ms, 60000);
    assert_int_equal(record_of(&p, 0).waits_us, 7000000);
    atomic_store(&p.words[STATS_STALL_NS], 0);
    assert_int_equal(record_of(&p, 0).stall_ms, -1);
}

UNIT_TEST(a_rank_without_reports_has_no_progress)
{
    struct stats_page p = page_new();
    struct live_progress g = record_of(&p, 0).progress;

    assert_true(g.step == -1 && g.total_steps == -1 && g.epoch == -1);
    assert_true(g.total_epochs == -1 && g.samples == -1 && g.commit_step == -1);
    assert_true(g.samples_per_s < 0 && g.n_metrics == 0);
    assert_true(g.updated_wall_us == 0 && g.commit_wall_us == 0);
}

UNIT_TEST(progress_is_copied)
{
    struct stats_page p = page_new();
    struct stats_progress from = {.step = 10,
                                  .total_steps = 20,
                                  .epoch = 1,
                                  .total_epochs = 2,
                                  .samples = 640,
                                  .commit_step = 8,
                                  .commit_wall_us = 11,
                                  .updated_wall_us = 12,
                                  .n_metrics = 2,
                                  .metrics = {{"loss", 0.5}, {"lr", NAN}}};
    struct live_progress g;

    stats_page_put_progress(&p, &from);
    g = record_of(&p, 0).progress;
    assert_true(g.step == 10 && g.total_steps == 20 && g.epoch == 1);
    assert_true(g.total_epochs == 2 && g.samples == 640 && g.commit_step == 8);
    assert_true(g.commit_wall_us == 11 && g.updated_wall_us == 12);
    assert_int_equal(g.n_metrics, 2);
    assert_string_equal(g.metrics[0].name, "loss");
    assert_true(g.metrics[0].value == 0.5);
    assert_string_equal(g.metrics[1].name, "lr");
    assert_true(isnan(g.metrics[1].value));
}

UNIT_TEST(what_a_program_has_spoilt_is_unknown)
{
    struct stats_page p = page_new();
    struct stats_progress from = {
        .step = INT64_MIN,
        .total_steps = -2,
        .epoch = -1,
        .samples = INT64_MAX,
        .n_metrics = 3,
        .metrics = {{"a\nb\x7f\x01", 1}, {"caf\xc3\xa9 \xff\xc3", 2}, {"<b>&\"", 3}}};
    struct live_progress g;

    stats_page_put_progress(&p, &from);
    g = record_of(&p, 0).progress;
    assert_true(g.step == -1 && g.total_steps == -1 && g.epoch == -1);
    assert_true(g.samples == INT64_MAX);
    assert_int_equal(g.n_metrics, 3);
    assert_string_equal(g.metrics[0].name, "a?b??");
    assert_string_equal(g.metrics[1].name, "caf\xc3\xa9 ??");
    assert_string_equal(g.metrics[2].name, "<b>&\""); /* escaped where it is shown */
}

UNIT_MAIN(NULL, NULL)
