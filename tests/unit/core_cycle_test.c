/* SPDX-License-Identifier: Apache-2.0 */
/* When is a training loop steady? Each row is a run of answered slots, a letter each;
 * '|' marks where the plan is sent (the letter behind it begins it), '!' that something
 * else was answered. */
#include "runtime/base/mem.h"
#include "runtime/core/cycle.h"
#include "tests/unit/unit.h"

static const struct {
    const char *run, *plan; /* plan: its slots, NULL: none is sent */
} rows[] = {
    {"abcabcabc|a", "abc"},
    {"abcabcab", NULL},
    {"aaa|a", "a"},
    {"abcacbbca|b", "bca"}, /* any order is right; the last one is reported */
    {"cabcabbca|b", "bca"}, /* the first one may be cut anywhere */
    {"abcabc!abcabcabc|a", "abc"},
    {"abcabcab!abcabc", NULL},
    {"abababcababcab", NULL},     /* now and then one more */
    {"abcababcab", NULL},         /* one less */
    {"abcabdabcabdabc", NULL},    /* another one */
    {"abcabcabdabdabd|a", "abd"}, /* a new loop */
    {"abab!", NULL},
    {"!!!aa!a!aaa|a", "a"},
    {"", NULL},
    /* Something else in each step, in one of two, and now and then. */
    {"ab!ab!ab!ab!ab!ab!ab!ab!", NULL},
    {"abab!abab!abab!abab!", NULL},
};

static uint32_t slot_of(char c)
{
    return (uint32_t)(c - 'a');
}

static struct cycle *cycle_make(uint32_t n_slots)
{
    struct cycle *c;

    assert_int_equal(cycle_new(n_slots, &c), 0);
    return c;
}

static void cycle_play(struct cycle *c, const char *run, const char *plan)
{
    const uint32_t *slots;
    uint32_t n;

    for (const char *p = run; *p; p++) {
        bool is_due = *p == '|';

        p += is_due;
        if (*p == '!') {
            cycle_reset(c);
            assert_true(cycle_is_new(c));
            continue;
        }
        if (cycle_answer(c, slot_of(*p), &slots, &n) != is_due)
            fail_msg("%s: at %s", run, p);
        assert_int_equal(cycle_has(c, slot_of(*p)), !is_due);
        assert_false(cycle_is_new(c));
        if (!is_due)
            continue;
        assert_non_null(plan);
        assert_int_equal(n, strlen(plan));
        for (uint32_t i = 0; i < n; i++)
            assert_int_equal(slots[i], slot_of(plan[i]));
        assert_null(strchr(p, '|'));
    }
    assert_true(!plan == !strchr(run, '|'));
}

/* By a new one, and by one that has forgotten other runs. */
UNIT_TEST(equal_steps_are_seen)
{
    struct cycle *used = cycle_make(24);

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct cycle *c = cycle_make(24);

        assert_true(cycle_is_new(c));
        cycle_play(c, rows[i].run, rows[i].plan);
        cycle_free(c);
        cycle_play(used, rows[i].run, rows[i].plan);
        cycle_reset(used);
    }
    cycle_free(used);
}

UNIT_TEST(a_step_may_be_as_long_as_a_plan)
{
    const uint32_t *slots;
    uint32_t n = 0;

    for (uint32_t extra = 0; extra < 2; extra++) {
        struct cycle *c = cycle_make(CYCLE_MAX + 8);
        bool is_steady = false;

        for (uint32_t step = 0; step < 8; step++)
            for (uint32_t i = 0; i < CYCLE_MAX + extra && !is_steady; i++)
                is_steady = cycle_answer(c, i, &slots, &n);
        assert_int_equal(is_steady, !extra);
        if (is_steady)
            assert_int_equal(n, CYCLE_MAX);
        cycle_free(c);
    }
}

UNIT_TEST(slots_that_cannot_be_are_not_counted)
{
    struct cycle *c = cycle_make(2);
    const uint32_t *slots;
    uint32_t n;

    for (int i = 0; i < 9; i++)
        assert_false(cycle_answer(c, 2, &slots, &n));
    assert_false(cycle_has(c, 2));
    assert_false(cycle_has(c, UINT32_MAX));
    cycle_free(c);
    cycle_free(NULL);
}

/* How many equal steps are needed for a plan of "ab"? */
static uint32_t steps_until_plan(struct cycle *c)
{
    const uint32_t *slots;
    uint32_t n;

    cycle_reset(c);
    for (uint32_t step = 0; step < 3 * CYCLE_SAME_MAX; step++) {
        if (cycle_answer(c, 0, &slots, &n))
            return step - 1;
        assert_false(cycle_answer(c, 1, &slots, &n));
    }
    return 0;
}

UNIT_TEST(plans_that_do_not_last_become_rare)
{
    struct cycle *c = cycle_make(8);

    for (int round = 0; round < 2; round++) {
        uint32_t want = CYCLE_SAME_STEPS;

        cycle_left(c, CYCLE_FEW_STEPS - 1); /* this may happen */
        for (int i = 0; i < 14; i++) {
            assert_int_equal(cycle_needs(c), want);
            assert_int_equal(steps_until_plan(c), want);
            cycle_left(c, 0);
            want = want < CYCLE_SAME_MAX ? want * 2 : want;
        }
        assert_int_equal(want, CYCLE_SAME_MAX);
        cycle_left(c, CYCLE_FEW_STEPS); /* all is well again */
        assert_int_equal(cycle_needs(c), CYCLE_SAME_STEPS);
    }
    cycle_free(c);
}

UNIT_MAIN(NULL, NULL)
