/* SPDX-License-Identifier: Apache-2.0 */
/* Writing for other ranks to read: both ways copy correctly, and the choice between
 * them follows the measured cost, not a single outlier. */
#include "tests/unit/unit.h"

#include "runtime/backend/cpu/shm_put.h"

enum { ROOM = 3000, GUARD = 64 };

UNIT_TEST(copy_is_exact_at_every_alignment_and_size)
{
    static uint8_t src[ROOM + 64], dst[ROOM + 64 + 2 * GUARD];
    static const size_t sizes[] = {0, 1, 63, 64, 511, 512, 513, 575, 576, 1024, 2999};
    for (size_t i = 0; i < sizeof(src); i++)
        src[i] = (uint8_t)(i * 7 + i / 256);
    for (int streams = 0; streams < 2; streams++)
        for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++)
            for (size_t at = 0; at < 64; at += at < 20 ? 1 : 11) {
                struct put p = {.streams = streams != 0};
                size_t n = sizes[s], end = GUARD + at + n;
                memset(dst, 0xEE, sizeof(dst));
                put_copy(&p, dst + GUARD + at, src + at / 2, n);
                put_flush(&p);
                assert_memory_equal(dst + GUARD + at, src + at / 2, n);
                assert_false(p.is_pending);
                for (size_t g = 0; g < GUARD; g++)
                    assert_int_equal(dst[at + g] & dst[end + g], 0xEE);
            }
}

/* Runs n chunks with the given costs per byte; returns how many of the last PUT_PERIOD
 * went past the caches. */
static int choice_measure(struct put_choice *c, int n, double plain, double streamed)
{
    int n_streamed = 0;
    for (int i = 0; i < n; i++) {
        bool streams;
        bool is_trial = put_choice_next(c, &streams);
        if (is_trial)
            put_choice_vote(c, streams, streams ? streamed : plain);
        if (i >= n - PUT_PERIOD)
            n_streamed += streams;
    }
    return n_streamed;
}

UNIT_TEST(choice_takes_the_cheaper_way_and_keeps_trying)
{
    struct put_choice c = {0};
    assert_int_equal(choice_measure(&c, PUT_PERIOD, 3, 1), PUT_PERIOD - 16 + 8);
    assert_int_equal(choice_measure(&c, PUT_PERIOD, 3, 1), PUT_PERIOD - 1);
    /* the machine changes */
    assert_int_equal(choice_measure(&c, 4 * PUT_PERIOD, 1, 3), 1);
    assert_int_equal(choice_measure(&c, 5 * PUT_PERIOD, 3, 1), PUT_PERIOD - 1);
}

UNIT_TEST(choice_survives_one_odd_trial)
{
    struct put_choice c = {0};
    (void)choice_measure(&c, 4 * PUT_PERIOD, 3, 1);
    assert_int_equal(choice_measure(&c, PUT_PERIOD, 3, 4000),
                     PUT_PERIOD - 1); /* preempted */
    assert_int_equal(choice_measure(&c, PUT_PERIOD, 3, 1), PUT_PERIOD - 1);
}

UNIT_TEST(short_chunks_are_never_tried)
{
    struct put p = {.choice = {[PUT_SMALL] = {.score = PUT_SCORE_MAX}}};
    for (int i = 0; i < 2 * PUT_PERIOD; i++) {
        struct put_trial t = put_begin(&p, PUT_SMALL, PUT_TRIED_MIN - 1);
        put_work(&p, &t);
        assert_false(p.streams);
        put_rest(&t);
        put_end(&t);
    }
    assert_int_equal(p.choice[PUT_SMALL].n, 0);
    assert_true(put_found(&p, PUT_SMALL, PUT_TRIED_MIN).streams);
    assert_false(put_found(&p, PUT_SMALL, PUT_TRIED_MIN - 1).streams);
    assert_false(put_found(&p, PUT_SLOT, PUT_TRIED_MIN).streams);
}

UNIT_TEST(trial_counts_work_and_not_waits)
{
    struct put p = {.streams = false};
    struct put_trial t = put_begin(&p, PUT_SLOT, PUT_TRIED_MIN);
    assert_non_null(t.choice); /* the first are trials */
    put_work(&p, &t);
    put_rest(&t);
    uint64_t spent = t.spent_ns;
    t.since_ns -= 20000000000u; /* a wait passes */
    assert_int_equal(t.spent_ns, spent);
    put_work(&p, &t);
    put_rest(&t);
    assert_true(t.spent_ns - spent < 10000000000u);
    put_end(&t);
    assert_true(p.choice[PUT_SLOT].plain > 0 || t.spent_ns == 0);
}

UNIT_MAIN(NULL, NULL)
