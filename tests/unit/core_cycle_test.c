/* SPDX-License-Identifier: Apache-2.0 */
/* When is a training loop steady? Each row is a run of answered slots, a letter each;
 * '|' marks where the plan is to be told (the letter behind it begins it), '!' that
 * something else was answered. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/core/cycle.h"
#include "tests/unit/torture.h"

static const struct {
    const char *run, *plan; /* plan: the slots told, NULL: none is */
} rows[] = {
    {"abcabcabc|a", "abc"},
    {"abcabcab", NULL},
    {"aaa|a", "a"},
    {"abcacbbca|b", "bca"}, /* any order is as good; the last one is told */
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
};

static void play(struct cycle *c, const char *run, const char *plan)
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
        assert_int_equal(cycle_answer(c, (uint32_t)(*p - 'a'), &slots, &n), is_due);
        assert_int_equal(cycle_has(c, (uint32_t)(*p - 'a')), !is_due);
        assert_false(cycle_is_new(c));
        if (!is_due)
            continue;
        assert_non_null(plan);
        assert_int_equal(n, strlen(plan));
        for (uint32_t i = 0; i < n; i++)
            assert_int_equal(slots[i], plan[i] - 'a');
        assert_null(strchr(p, '|'));
    }
    assert_true(!plan == !strchr(run, '|'));
}

static void equal_steps_are_seen(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct cycle *c;

        assert_int_equal(cycle_new(8, &c), 0);
        assert_true(cycle_is_new(c));
        play(c, rows[i].run, rows[i].plan);
        cycle_free(c);
    }
}

static void a_reset_forgets_all(void **state)
{
    struct cycle *c;

    (void)state;
    assert_int_equal(cycle_new(8, &c), 0);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        play(c, rows[i].run, rows[i].plan);
        cycle_reset(c);
    }
    cycle_free(c);
}

static void a_step_may_be_as_long_as_a_plan(void **state)
{
    const uint32_t *slots;
    struct cycle *c;
    uint32_t n = 0;
    bool is_steady = false;

    (void)state;
    for (uint32_t extra = 0; extra < 2; extra++) {
        assert_int_equal(cycle_new(CYCLE_MAX + 8, &c), 0);
        for (uint32_t step = 0; step < 8; step++)
            for (uint32_t i = 0; i < CYCLE_MAX + extra && !is_steady; i++)
                is_steady = cycle_answer(c, i, &slots, &n);
        assert_int_equal(is_steady, !extra);
        if (is_steady)
            assert_int_equal(n, CYCLE_MAX);
        is_steady = false;
        cycle_free(c);
    }
}

static void slots_that_cannot_be_are_not_counted(void **state)
{
    const uint32_t *slots;
    struct cycle *c;
    uint32_t n;

    (void)state;
    assert_int_equal(cycle_new(2, &c), 0);
    for (int i = 0; i < 9; i++)
        assert_false(cycle_answer(c, 2, &slots, &n));
    assert_false(cycle_has(c, 2));
    assert_false(cycle_has(c, UINT32_MAX));
    cycle_free(c);
    cycle_free(NULL);
}

static int make(void *arg)
{
    struct cycle *c;
    int r = cycle_new(9, &c);

    (void)arg;
    if (r == 0)
        cycle_free(c);
    return r;
}

static void lack_of_memory_is_told(void **state)
{
    (void)state;
    torture(make, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_steps_are_seen),
        cmocka_unit_test(a_reset_forgets_all),
        cmocka_unit_test(a_step_may_be_as_long_as_a_plan),
        cmocka_unit_test(slots_that_cannot_be_are_not_counted),
        cmocka_unit_test(lack_of_memory_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
