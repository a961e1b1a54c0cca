/* SPDX-License-Identifier: Apache-2.0 */
/* Phases of HVD_DRY_RUN: which batches communicate, which steps are measured. */
#include "runtime/core/dry_run.h"
#include "tests/unit/unit.h"

static struct dry_run d;

static int dry_run_clear(void **state)
{
    (void)state;
    memset(&d, 0, sizeof(d));
    return 0;
}

/* A step of two batches; true: without communication. */
static bool run_step(uint64_t plan)
{
    bool first = dry_run_next(&d, plan, 5, 3), second = dry_run_next(&d, plan, 5, 2);

    assert_int_equal(first, second);
    return first;
}

UNIT_TEST_WITH(ten_steps_with_and_ten_without, dry_run_clear, NULL)
{
    for (int step = 0; step < 60; step++)
        assert_int_equal(run_step(1), step / 10 % 2 == 1);
}

UNIT_TEST_WITH(a_round_that_a_left_plan_did_not_complete_is_no_step,
               dry_run_clear,
               NULL)
{
    for (int step = 0; step < 9; step++)
        assert_false(run_step(1));
    assert_false(dry_run_next(&d, 1, 5, 3));
    assert_false(run_step(2)); /* the tenth */
    assert_true(run_step(2));
}

UNIT_TEST_WITH(the_first_steps_of_a_phase_are_not_measured, dry_run_clear, NULL)
{
    struct dry_run_result r;

    dry_run_measure(&d, 5); /* before the first step */
    for (int step = 0; step < 40; step++) {
        bool is_dry = run_step(1);

        dry_run_measure(&d, step % 10 < 2 ? 1000000 : is_dry ? 30 : 40);
    }
    r = dry_run_result(&d);
    assert_int_equal(r.with_ns, 40);
    assert_int_equal(r.without_ns, 30);
    assert_int_equal(r.n_with, 16);
    assert_int_equal(r.n_without, 16);
}

UNIT_TEST_WITH(outliers_do_not_count_and_the_last_steps_are_kept, dry_run_clear, NULL)
{
    struct dry_run_result r;

    for (int step = 0; step < 4000; step++) {
        (void)run_step(1);
        dry_run_measure(&d, step < 2000 ? 7 : step % 10 == 5 ? 900 : 100);
    }
    r = dry_run_result(&d);
    assert_int_equal(r.with_ns, 100);
    assert_int_equal(r.without_ns, 100);
    assert_int_equal(r.n_with, 1600);
    assert_true(r.n_with > DRY_RUN_KEPT);
}

UNIT_MAIN(NULL, NULL)
