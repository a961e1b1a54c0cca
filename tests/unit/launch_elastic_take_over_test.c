/* SPDX-License-Identifier: Apache-2.0 */
/* A leader that takes over an elastic job: a new one, or one that was cut off. */
#include "tests/unit/launch_leader.h"

UNIT_TEST(a_new_leader_continues_with_a_whole_world)
{
    job_begin(3, 1, 2, 3);
    elastic_take_over(&e, 2, now + e.config.leave_ns);
    workers_come();
    leader_adopts(0, 6, 1, 2);
    leader_adopts(2, 6, 0, 2);
    leader_does("");
    assert_true(elastic_next_ns(&e) == now + 30 * S);
    now += 30 * S;
    leader_does("start 1");
    assert_int_equal(e.state, ELASTIC_RUNNING);
    assert_int_equal(e.members[0], 2);
    assert_int_equal(e.members[1], 0);
    leader_adopts(0, 9, 0, 1); /* too late */
    assert_int_equal(e.generation, 6);
    slot_reports(1);
    leader_does("notify added");
    members_report();
    leader_does("form 131073: 0 2 1"); /* the oldest, then the rank that is kept */
}

UNIT_TEST(a_new_leader_ends_a_world_of_which_some_are_missing)
{
    job_begin(3, 1, 1, 3);
    elastic_take_over(&e, 1, now + e.config.leave_ns);
    worker_comes(0);
    leader_adopts(0, 6, 1, 2);
    now += 30 * S;
    leader_does("break");
    slot_reports(0);
    leader_does("form 65537: 0");
}

/* Its predecessor was lost while it sent the world 7. */
UNIT_TEST(a_new_leader_ends_a_world_that_not_all_know)
{
    job_begin(2, 1, 1, 2);
    elastic_take_over(&e, 1, now + e.config.leave_ns);
    workers_come();
    leader_adopts(0, 7, 0, 2);
    leader_adopts(1, 6, 1, 2);
    now += 30 * S;
    leader_does("break");
    members_report();
    leader_does("form 65537: 0 1");
}

/* Both workers are lost to a leader whose world of 2 works. */
static void leader_is_cut_off(void)
{
    job_runs(2, 1, 1, 2);
    elastic_lose_worker(&e, 0, now);
    elastic_lose_worker(&e, 1, now);
    elastic_take_over_again(&e);
    leader_does("");
    assert_true(elastic_next_ns(&e) == now + 600 * S);
    now += 100 * S;
    leader_does("");
}

UNIT_TEST(a_leader_that_was_cut_off_takes_over_again)
{
    leader_is_cut_off();
    elastic_know_leaders(&e, 1, 1);
    leader_adopts(0, 1, 0, 2);
    leader_adopts(1, 1, 1, 2);
    workers_come();
    leader_does("");
    elastic_end_take_over(&e, now);
    leader_does(""); /* its world still works */
    assert_int_equal(e.state, ELASTIC_RUNNING);
    slot_fails(1, 7);
    leader_does("start 1, break");
    slot_reports(0);
    leader_does("form 65538: 0"); /* of a later term */
}

UNIT_TEST(a_leader_that_was_cut_off_waits_for_a_worker_that_is_late)
{
    leader_is_cut_off();
    elastic_know_leaders(&e, 1, 1);
    leader_adopts(0, 1, 0, 2);
    worker_comes(0);
    elastic_end_take_over(&e, now + 40 * S);
    now += 40 * S - 1;
    leader_does("");
    now += 1;
    leader_does("break"); /* rank 1 was not reported */
    slot_reports(0);
    leader_does("form 65538: 0");
}

UNIT_TEST(a_leader_whose_workers_have_lost_all_begins_again)
{
    leader_is_cut_off();
    workers_come();
    elastic_end_take_over(&e, now);
    leader_does("start 0, start 1");
    slot_reports(0);
    leader_does("form 2: 0"); /* of min_ranks: it is not the first world */
}

UNIT_TEST(a_leader_to_which_no_worker_comes_back_ends_the_job)
{
    leader_is_cut_off();
    now += 500 * S;
    leader_does("end");
    assert_string_equal(e.why, "0 of at least 1 ranks are ready, 2 of 2 workers are "
                               "absent");
}

UNIT_MAIN(NULL, job_release)
