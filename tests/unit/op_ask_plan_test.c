/* SPDX-License-Identifier: Apache-2.0 */
/* When jobs are asked: each once an interval, spread over it, less often when they do not
 * answer; and which answers are worth a sync. */
#include "tests/unit/unit.h"

#include "operator/core/ask_plan.h"
#include "runtime/base/mem.h"

#define S     1000000000ull
#define EVERY (15 * S)

enum { JOBS = 500 };

struct plan_world {
    struct ask_wheel w;
    struct ask_turn turn[JOBS];
};

static void world_open(struct plan_world *p, size_t n, uint64_t now_ns)
{
    char uid[32];

    ask_wheel_init(&p->w, EVERY, now_ns);
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(uid, sizeof(uid), "uid-%zu", i);
        assert_int_equal(ask_wheel_add(&p->w, &p->turn[i], uid), 0);
    }
}

static size_t take_all(struct plan_world *p, uint64_t now_ns, size_t taken[JOBS])
{
    struct ask_turn *t;
    size_t n = 0;

    while ((t = ask_wheel_take(&p->w, now_ns))) {
        if (taken)
            taken[t - p->turn]++;
        ask_turn_end(t, ASK_OK, EVERY, now_ns);
        n++;
    }
    return n;
}

UNIT_TEST(each_job_is_asked_once_an_interval_and_no_second_is_crowded)
{
    static struct plan_world p;
    size_t taken[JOBS] = {0}, n, most = 0;

    world_open(&p, JOBS, 1000 * S);
    for (uint64_t s = 1; s <= 15; s++) {
        n = take_all(&p, (1000 + s) * S, taken);
        most = n > most ? n : most;
    }
    for (size_t i = 0; i < JOBS; i++)
        assert_int_equal(taken[i], 1);
    assert_true(most < 2 * JOBS / 15);
    for (uint64_t s = 16; s <= 15 * 10; s++)
        (void)take_all(&p, (1000 + s) * S, taken);
    for (size_t i = 0; i < JOBS; i++)
        assert_int_equal(taken[i], 10);
    ask_wheel_release(&p.w);
}

UNIT_TEST(the_next_time_is_that_of_the_next_job)
{
    static struct plan_world p;
    uint64_t now_ns = 1000 * S, next_ns;

    world_open(&p, 0, now_ns);
    assert_true(ask_wheel_next_ns(&p.w) == UINT64_MAX);
    ask_wheel_release(&p.w);
    world_open(&p, 20, now_ns);
    for (int i = 0; i < 60; i++) {
        next_ns = ask_wheel_next_ns(&p.w);
        assert_true(next_ns > now_ns && next_ns <= now_ns + EVERY);
        assert_null(ask_wheel_take(&p.w, next_ns - 1));
        assert_int_equal(take_all(&p, next_ns, NULL), 1);
        now_ns = next_ns;
    }
    assert_true(now_ns > 1045 * S - EVERY && now_ns < 1060 * S);
    ask_wheel_release(&p.w);
}

UNIT_TEST(after_a_pause_each_job_is_asked_once)
{
    static struct plan_world p;
    size_t taken[JOBS] = {0};

    world_open(&p, 100, 1000 * S);
    assert_int_equal(take_all(&p, 9000 * S, taken), 100);
    assert_int_equal(take_all(&p, 9000 * S + 1, taken), 0);
    ask_wheel_release(&p.w);
}

UNIT_TEST(removed_jobs_are_not_asked_and_equal_places_are_kept_apart)
{
    static struct plan_world p;
    size_t taken[JOBS] = {0};

    world_open(&p, 10, 1000 * S);
    for (size_t i = 10; i < 20; i++)
        assert_int_equal(ask_wheel_add(&p.w, &p.turn[i], "uid-3"), 0);
    for (size_t i = 0; i < 20; i += 2)
        ask_wheel_remove(&p.w, &p.turn[i]);
    assert_int_equal(take_all(&p, 1000 * S + EVERY, taken), 10);
    for (size_t i = 0; i < 20; i++)
        assert_int_equal(taken[i], i % 2);
    ask_wheel_release(&p.w);
}

UNIT_TEST(a_job_that_does_not_answer_is_asked_ever_less_often_at_its_place)
{
    static const uint64_t after_s[] = {15, 30, 60, 120, 240, 300, 300};
    static struct plan_world p;
    uint64_t now_ns;

    world_open(&p, 1, 1000 * S);
    now_ns = ask_wheel_next_ns(&p.w);
    for (size_t i = 0; i < sizeof(after_s) / sizeof(after_s[0]); i++) {
        uint64_t asked_ns = now_ns;

        assert_ptr_equal(ask_wheel_take(&p.w, now_ns), &p.turn[0]);
        ask_turn_end(&p.turn[0], ASK_UNREACHABLE, EVERY, now_ns + 3 * S);
        do {
            now_ns = ask_wheel_next_ns(&p.w);
        } while (now_ns < asked_ns + after_s[i] * S && !ask_wheel_take(&p.w, now_ns));
        assert_int_equal((now_ns - asked_ns) / S, after_s[i]);
    }
    assert_ptr_equal(ask_wheel_take(&p.w, now_ns), &p.turn[0]);
    ask_turn_end(&p.turn[0], ASK_OK, EVERY, now_ns);
    assert_ptr_equal(ask_wheel_take(&p.w, now_ns + EVERY), &p.turn[0]);
    ask_wheel_release(&p.w);
}

/* A uid whose place is 14 s behind the begin of the circle, where the hand is. */
static void world_open_late(struct plan_world *p, uint64_t now_ns)
{
    char uid[32];

    for (int i = 0;; i++) {
        ask_wheel_init(&p->w, EVERY, now_ns);
        (void)snprintf(uid, sizeof(uid), "uid-%d", i);
        assert_int_equal(ask_wheel_add(&p->w, &p->turn[0], uid), 0);
        if (p->turn[0].place_ns / S == 14)
            return;
        ask_wheel_release(&p->w);
    }
}

/* Until `until_s` after now_ns: the seconds in which it is asked. */
static void check_times(struct plan_world *p,
                        uint64_t now_ns,
                        enum ask_result r,
                        uint64_t until_s,
                        const char *wanted)
{
    char got[100] = "";
    uint64_t at_ns;

    while ((at_ns = ask_wheel_next_ns(&p->w)) < now_ns + until_s * S) {
        struct ask_turn *t = ask_wheel_take(&p->w, at_ns);
        size_t n = strlen(got);

        if (!t) /* it is passed over */
            continue;
        ask_turn_end(t, r, EVERY, at_ns);
        (void)snprintf(got + n, sizeof(got) - n, "%llu ", (at_ns - now_ns) / S);
    }
    assert_string_equal(got, wanted);
}

UNIT_TEST(a_job_that_starts_is_asked_soon_then_at_its_place)
{
    static struct plan_world p;
    const struct {
        enum ask_result result;
        uint64_t begin_s; /* on the circle */
        const char *wanted;
    } rows[] = {
        {ASK_OK, 0, "1 4 10 29 44 59 "},    /* 14 is too near to 10 */
        {ASK_OK, 9, "1 4 10 20 35 50 "},    /* so is 5 to 4 */
        {ASK_OK, 13, "1 4 10 31 46 61 "},   /* so is 1 to 1, and 16 to 10 */
        {ASK_OK, 14, "0 3 9 30 45 60 "},    /* its place counts as one of them */
        {ASK_UNREACHABLE, 0, "1 4 10 44 "}, /* as two failures: 30 s, then 60 s */
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint64_t now_ns = 1005 * S + rows[i].begin_s * S;

        world_open_late(&p, now_ns);
        ask_wheel_start(&p.w, &p.turn[0], now_ns);
        check_times(&p, now_ns, rows[i].result, 62, rows[i].wanted);
        ask_wheel_release(&p.w);
    }
}

/* The job's place is at 14, 29, 44 and so on. */
UNIT_TEST(a_job_is_asked_again_when_its_report_wants_it)
{
    static struct plan_world p;
    const struct {
        int64_t again_ms;
        const char *wanted;
    } rows[] = {
        {-1, "14 29 44 "},
        {6000, "14 20 26 29 35 41 44 "}, /* and at its place all the same */
        {12000, "14 26 29 41 44 "},
        {15000, "14 29 44 "},
        {INT64_MAX, "14 29 44 "},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char got[100] = "";
        uint64_t at_ns;

        world_open_late(&p, 1005 * S);
        while ((at_ns = ask_wheel_next_ns(&p.w)) < 1050 * S) {
            struct ask_turn *t = ask_wheel_take(&p.w, at_ns);
            uint64_t at_s = (at_ns - 1005 * S) / S;
            size_t n = strlen(got);

            assert_non_null(t);
            assert_int_equal(t->is_extra, at_s % 15 != 14);
            ask_turn_end(t, ASK_OK, EVERY, at_ns);
            ask_wheel_again(&p.w, t, rows[i].again_ms, at_ns);
            (void)snprintf(got + n, sizeof(got) - n, "%u ", (unsigned)at_s);
        }
        assert_string_equal(got, rows[i].wanted);
        ask_wheel_remove(&p.w, &p.turn[0]);
        assert_true(ask_wheel_next_ns(&p.w) == UINT64_MAX);
        ask_wheel_release(&p.w);
    }
}

UNIT_TEST(no_job_is_asked_again_at_once_and_one_that_starts_not_more_often)
{
    static struct plan_world p;
    struct ask_turn *t;

    world_open_late(&p, 1005 * S);
    t = ask_wheel_take(&p.w, ask_wheel_next_ns(&p.w));
    ask_turn_end(t, ASK_OK, EVERY, 1020 * S);
    ask_wheel_again(&p.w, t, 0, 1020 * S);
    assert_int_equal(ask_wheel_next_ns(&p.w), 1020 * S + ASK_SOON_MIN_NS);
    ask_wheel_release(&p.w);
    world_open_late(&p, 1005 * S);
    ask_wheel_start(&p.w, &p.turn[0], 1005 * S);
    ask_wheel_again(&p.w, &p.turn[0], 0, 1005 * S);
    assert_int_equal(p.w.soon.n, 1);
    ask_wheel_release(&p.w);
}

UNIT_TEST(many_jobs_that_start_at_once_are_asked_one_after_the_other)
{
    static struct plan_world p;
    size_t taken[JOBS] = {0}, n, most = 0, firsts_before;

    world_open(&p, JOBS, 1000 * S);
    for (size_t i = 0; i < JOBS; i++)
        ask_wheel_start(&p.w, &p.turn[i], 1000 * S);
    for (uint64_t ms = 10; ms <= 60000; ms += 10) {
        firsts_before = p.w.soon.n;
        n = take_all(&p, 1000 * S + ms * (S / 1000), taken);
        most = n > most ? n : most;
        assert_true(p.w.soon.n <= firsts_before);
        for (size_t i = 0; ms == 10000 && i < JOBS; i++)
            assert_true(taken[i] >= 1);
        if (ms % 1000 == 0) {
            size_t all = 0;

            for (size_t i = 0; i < JOBS; i++)
                all += taken[i];
            /* of a second: a gap of 30 ms, and those at their places */
            assert_true(all <= ms / 1000 * (34 + 2 * JOBS / 15));
        }
    }
    assert_true(most <= 8);
    assert_int_equal(p.w.soon.n, 0);
    ask_wheel_release(&p.w);
}

UNIT_TEST(a_started_job_that_is_removed_is_not_asked)
{
    static struct plan_world p;
    size_t taken[JOBS] = {0};

    world_open(&p, 10, 1000 * S);
    for (size_t i = 0; i < 10; i++)
        ask_wheel_start(&p.w, &p.turn[i], 1000 * S);
    for (size_t i = 0; i < 10; i += 2)
        ask_wheel_remove(&p.w, &p.turn[i]);
    for (uint64_t s = 1; s <= 60; s++)
        (void)take_all(&p, (1000 + s) * S, taken);
    for (size_t i = 0; i < 10; i++)
        assert_true(i % 2 ? taken[i] >= 3 : taken[i] == 0);
    ask_wheel_release(&p.w);
}

UNIT_TEST(results_follow_from_errors)
{
    static const struct {
        int error;
        enum ask_result result;
    } rows[] = {
        {0, ASK_OK},
        {-EACCES, ASK_REFUSED},
        {-EPROTO, ASK_GARBAGE},
        {-ESTALE, ASK_GARBAGE},
        {-ETIMEDOUT, ASK_UNREACHABLE},
        {-ECONNREFUSED, ASK_UNREACHABLE},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(ask_result_of(rows[i].error), rows[i].result);
    assert_string_equal(ask_result_name(ASK_NO_TOKEN), "secret");
    assert_false(ask_is_stale(0, EVERY, 45 * S));
    assert_true(ask_is_stale(0, EVERY, 45 * S + 1));
}

UNIT_TEST(writes_of_progress_keep_to_their_share)
{
    assert_int_equal(ask_write_turns(EVERY, 0, 50), 1);
    assert_int_equal(ask_write_turns(EVERY, 250, 50), 1);
    assert_int_equal(ask_write_turns(EVERY, 1000, 50), 4);
    assert_int_equal(ask_write_turns(EVERY, 10000, 50), 40);
    assert_int_equal(ask_write_turns(EVERY, 10000, 500), 4);
    assert_int_equal(ask_write_turns(EVERY, 1000, 0), 200);
}

/* How many of the jobs have news in each of four turns, if all of their progress moves. */
UNIT_TEST(jobs_share_the_turns_in_which_progress_is_news)
{
    static struct plan_world p;
    const struct live_digest shown = {.progress = 1}, now = {.progress = 2};
    size_t n[4] = {0};

    world_open(&p, JOBS, 1000 * S);
    for (size_t turn = 0; turn < 4; turn++) {
        uint64_t end_ns = (1000 / 15 + 1 + turn) * EVERY;
        struct ask_turn *t;

        while ((t = ask_wheel_take(&p.w, end_ns - 1))) {
            enum ask_news news = ask_news_of(&p.w, t, &shown, &now, 4);

            n[turn] += news == NEWS_PROGRESS;
            ask_turn_end(t, ASK_OK, EVERY, p.w.hand_ns);
        }
    }
    for (size_t turn = 1; turn < 4; turn++) /* the first one is not a whole one */
        assert_in_range(n[turn], JOBS / 4 - JOBS / 16, JOBS / 4 + JOBS / 16);
    ask_wheel_release(&p.w);
}

UNIT_TEST(a_verdict_is_news_at_once_and_equal_reports_never)
{
    static struct plan_world p;
    const struct live_digest a = {.verdicts = 0, .progress = 1};
    const struct live_digest stalled = {.verdicts = 5, .progress = 1};
    const struct live_digest moved = {.verdicts = 0, .progress = 2};

    world_open(&p, 1, 1000 * S);
    p.turn[0].is_extra = true;
    assert_int_equal(ask_news_of(&p.w, &p.turn[0], &a, &stalled, 1), NEWS_VERDICT);
    assert_int_equal(ask_news_of(&p.w, &p.turn[0], &a, &moved, 1), NEWS_NONE);
    p.turn[0].is_extra = false;
    assert_int_equal(ask_news_of(&p.w, &p.turn[0], &a, &moved, 1), NEWS_PROGRESS);
    for (uint32_t turns = 1; turns < 50; turns++) {
        assert_int_equal(ask_news_of(&p.w, &p.turn[0], &a, &stalled, turns),
                         NEWS_VERDICT);
        assert_int_equal(ask_news_of(&p.w, &p.turn[0], &stalled, &a, turns),
                         NEWS_VERDICT);
        assert_int_equal(ask_news_of(&p.w, &p.turn[0], &a, &a, turns), NEWS_NONE);
    }
    ask_wheel_release(&p.w);
}

UNIT_MAIN(NULL, NULL)
