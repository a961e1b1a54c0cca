/* SPDX-License-Identifier: Apache-2.0 */
/* elastic_handover.c: all hosts of a job are replaced by others. */
#include "tests/unit/launch_leader.h"

/* Workers 0 and 1 of 4 run the job, of this many ranks, and it has committed. */
static void job_commits(uint32_t least, uint32_t most)
{
    job_begin(4, 1, least, most);
    worker_comes(0);
    worker_comes(1);
    leader_does("start 0, start 1");
    slot_reports(0);
    slot_reports(1);
    leader_does("form 1: 0 1");
    elastic_take_commit(&e, 1);
}

static void workers_leave(void)
{
    elastic_offer_slots(&e, 0, 0);
    elastic_offer_slots(&e, 1, 0);
}

UNIT_TEST(the_state_goes_to_processes_of_other_hosts)
{
    job_commits(2, 2);
    workers_leave();
    worker_comes(2);
    worker_comes(3);
    leader_does("start 2, start 3");
    slot_reports(2);
    leader_does("notify added removed");
    members_report();
    leader_does("stop 1, form 2: 0 2, notify removed");
    slot_fails(1, 0);
    slot_reports(3);
    leader_does("");
    elastic_take_commit(&e, 2);
    members_report();
    leader_does("stop 0, form 3: 2 3"); /* 2 is the oldest now */
    slot_fails(0, 0);
    leader_does("");
}

UNIT_TEST(a_spare_takes_the_state_at_once)
{
    job_commits(1, 2);
    e.config.n_spares = 1;
    worker_comes(2);
    leader_does("start 2");
    slot_reports(2);
    leader_does("");
    workers_leave();
    leader_does("notify added removed");
    members_report();
    leader_does("stop 1, form 2: 0 2, notify removed");
}

UNIT_TEST(hosts_leave_at_once_if_no_other_host_comes)
{
    job_commits(1, 2);
    workers_leave();
    leader_does("notify removed");
    members_report();
    leader_does("stop 1, stop 0");
}

UNIT_TEST(a_job_without_a_commit_has_no_state_to_give)
{
    job_begin(4, 1, 1, 2);
    worker_comes(0);
    leader_does("start 0");
    slot_reports(0);
    leader_does("form 1: 0");
    elastic_offer_slots(&e, 0, 0);
    worker_comes(1);
    leader_does("start 1, notify removed");
    slot_reports(0);
    leader_does("stop 0");
}

UNIT_TEST(a_host_that_is_expected_is_waited_for)
{
    job_commits(1, 2);
    elastic_expect_workers(&e, 1);
    workers_leave();
    leader_does("");
    assert_true(elastic_next_ns(&e) == now + 60 * S);
    worker_comes(2);
    elastic_expect_workers(&e, 0);
    leader_does("start 2");
    slot_reports(2);
    leader_does("notify added removed");
}

UNIT_TEST(no_host_is_waited_for_longer_than_a_minute)
{
    job_commits(1, 2);
    workers_leave();
    worker_comes(2);
    leader_does("start 2");
    now += 60 * S - 1;
    leader_does("");
    now += 1;
    leader_does("notify removed");
    assert_true(elastic_next_ns(&e) == UINT64_MAX);
    members_report();
    leader_does("stop 1, stop 0");
}

UNIT_TEST(a_process_that_leaves_waits_for_no_longer_than_a_minute)
{
    job_commits(2, 2);
    workers_leave();
    worker_comes(2);
    worker_comes(3);
    leader_does("start 2, start 3");
    slot_reports(0); /* its world broke, for a reason of its own */
    slot_reports(1);
    leader_does("stop 1");
    slot_fails(1, 0);
    now += 60 * S - 1;
    leader_does("");
    now += 1;
    leader_does("stop 0");
}

UNIT_TEST(a_world_that_breaks_before_its_commit_has_given_nothing)
{
    job_commits(1, 2);
    workers_leave();
    worker_comes(2);
    leader_does("start 2");
    slot_reports(2);
    leader_does("notify added removed");
    members_report();
    leader_does("stop 1, form 2: 0 2, notify removed");
    slot_fails(1, 0);
    elastic_expect_workers(&e, 0);
    slot_reports(2); /* without a commit: 2 may have no state */
    slot_reports(0);
    leader_does("form 3: 0 2, notify removed");
    elastic_take_commit(&e, 3);
    members_report();
    leader_does("stop 0, form 4: 2");
}

UNIT_TEST(the_state_of_a_host_that_stays_is_enough)
{
    job_commits(1, 2);
    elastic_offer_slots(&e, 0, 0);
    worker_comes(2);
    leader_does("start 2, notify removed");
    members_report();
    leader_does("stop 0, form 2: 1");
}

UNIT_TEST(a_job_of_one_rank_gives_nothing)
{
    job_begin(2, 1, 1, 1);
    worker_comes(0);
    leader_does("start 0");
    slot_reports(0);
    leader_does("form 1: 0");
    elastic_take_commit(&e, 1);
    elastic_offer_slots(&e, 0, 0);
    worker_comes(1);
    leader_does("start 1, notify removed"); /* a world of both would be too large */
}

UNIT_MAIN(NULL, job_release)
