/* SPDX-License-Identifier: Apache-2.0 */
/* elastic_slots.c: workers that come, go, and change the number of their slots. */
#include "runtime/launch/core/elastic_slots.h"
#include "tests/unit/launch_leader.h"

UNIT_TEST(a_lost_worker_comes_back_with_new_processes)
{
    job_runs(2, 2, 2, 4);
    elastic_lose_worker(&e, 1, now);
    leader_does("break");
    members_report();
    leader_does("form 2: 0 1");
    worker_comes(1);
    leader_does("start 2, start 3");
    elastic_take_ready(&e, 2, 1, 1, now); /* the process that was lost */
    leader_does("");
    elastic_take_ready(&e, 0, 1, 1, now); /* of its world before */
    leader_does("");
    slot_reports(2);
    slot_reports(3);
    leader_does("notify added");
}

UNIT_TEST(a_drained_worker_leaves_at_a_commit)
{
    job_runs(2, 2, 2, 4);
    elastic_offer_slots(&e, 0, 0);
    leader_does("notify removed");
    leader_does("");
    slot_reports(0);
    leader_does("stop 0"); /* it is not in the next world; nothing is broken */
    members_report();
    leader_does("stop 1, form 2: 2 3");
    slot_fails(0, 0);
    slot_fails(1, 0);
    leader_does("");
    elastic_lose_worker(&e, 0, now);
    worker_comes(0);
    leader_does("start 0, start 1");
}

UNIT_TEST(no_process_starts_on_a_drained_worker)
{
    job_begin(2, 2, 4, 4);
    workers_come();
    elastic_offer_slots(&e, 1, 0);
    leader_does("start 0, start 1");
    job_runs(2, 2, 1, 4);
    e.slots[2].state = SLOT_EXCLUDED;
    e.slots[2].until_ns = now;
    elastic_offer_slots(&e, 1, 0);
    leader_does("notify removed");
    elastic_lose_worker(&e, 1, now);
    worker_comes(1);
    members_report();
    leader_does("start 2, start 3, form 2: 0 1");
}

UNIT_TEST(a_worker_that_offers_fewer_slots_loses_the_last_ones_at_a_commit)
{
    job_runs(2, 2, 2, 4);
    elastic_offer_slots(&e, 0, 1);
    leader_does("notify removed");
    members_report();
    leader_does("stop 1, form 2: 0 3 2"); /* ranks 0 and 2 stay */
    slot_fails(1, 0);
    leader_does("");
    assert_int_equal(e.slots[1].state, SLOT_ABSENT);
    elastic_offer_slots(&e, 0, 2);
    leader_does("start 1");
    slot_reports(1);
    leader_does("notify added");
}

UNIT_TEST(a_worker_may_have_fewer_slots_than_others)
{
    job_begin(2, 4, 1, 8);
    elastic_offer_slots(&e, 0, 1);
    elastic_offer_slots(&e, 1, 9); /* no more than there are */
    elastic_offer_slots(&e, 2, 4); /* no such worker */
    leader_does("start 0, start 4, start 5, start 6, start 7");
}

UNIT_TEST(a_slot_that_is_offered_again_in_time_keeps_its_process)
{
    job_runs(1, 2, 1, 2);
    elastic_offer_slots(&e, 0, 1);
    elastic_offer_slots(&e, 0, 2);
    leader_does("");
    elastic_offer_slots(&e, 0, 1);
    leader_does("notify removed");
    elastic_offer_slots(&e, 0, 2);
    members_report();
    leader_does("form 2: 0 1");
}

UNIT_TEST(slots_of_a_worker_that_was_lost_are_offered_anew)
{
    job_runs(2, 2, 1, 4);
    elastic_offer_slots(&e, 1, 1);
    elastic_lose_worker(&e, 1, now);
    leader_does("break");
    for (uint32_t i = 2; i < 4; i++) {
        assert_int_equal(e.slots[i].state, SLOT_ABSENT);
        assert_false(e.slots[i].is_drained);
    }
    elastic_offer_slots(&e, 1, 1);
    leader_does("start 2");
}

UNIT_TEST(an_exclusion_continues_when_the_slot_is_offered_again)
{
    job_runs(3, 1, 1, 3);
    for (int n = 0; n < 2; n++) {
        slot_fails(0, 7);
        job_settle();
    }
    assert_int_equal(e.slots[0].state, SLOT_EXCLUDED);
    elastic_offer_slots(&e, 0, 0);
    assert_int_equal(e.slots[0].state, SLOT_ABSENT);
    elastic_offer_slots(&e, 0, 1);
    leader_does("");
    now += 10 * S;
    elastic_offer_slots(&e, 0, 0);
    leader_does("");
    elastic_offer_slots(&e, 0, 1);
    leader_does("start 0");
}

UNIT_TEST(a_worker_is_useless_when_each_slot_that_it_offers_is_excluded)
{
    static const struct {
        enum slot_state state[3];
        bool is_useless;
    } row[] = {{{SLOT_EXCLUDED, SLOT_EXCLUDED, SLOT_EXCLUDED}, true},
               {{SLOT_EXCLUDED, SLOT_ABSENT, SLOT_EXCLUDED}, true},
               {{SLOT_ABSENT, SLOT_ABSENT, SLOT_ABSENT}, false},
               {{SLOT_EXCLUDED, SLOT_IDLE, SLOT_EXCLUDED}, false},
               {{SLOT_EXCLUDED, SLOT_STARTING, SLOT_EXCLUDED}, false},
               {{SLOT_EXCLUDED, SLOT_READY, SLOT_ABSENT}, false},
               {{SLOT_EXCLUDED, SLOT_EXCLUDED, SLOT_MEMBER}, false},
               {{SLOT_EXCLUDED, SLOT_EXCLUDED, SLOT_DONE}, false}};

    job_runs(2, 3, 1, 6);
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        for (uint32_t slot = 0; slot < 3; slot++)
            e.slots[3 + slot].state = row[i].state[slot];
        assert_int_equal(elastic_is_useless(&e, 1), row[i].is_useless);
    }
    assert_false(elastic_is_useless(&e, 0)); /* the other worker's do not count */
    assert_false(elastic_is_useless(&e, 2)); /* no such worker */
}

/* Spares replace the members that leave. */
UNIT_TEST(members_are_notified_of_additions_and_removals)
{
    job_begin(3, 1, 1, 2);
    e.config.n_spares = 1;
    workers_come();
    leader_does("start 0, start 1, start 2");
    for (uint32_t i = 0; i < 3; i++)
        slot_reports(i);
    leader_does("form 1: 0 1");
    elastic_offer_slots(&e, 1, 0);
    leader_does("notify added removed");
    members_report();
    leader_does("stop 1, form 2: 0 2");
    elastic_offer_slots(&e, 2, 0);
    leader_does("notify removed"); /* there is no spare */
}

UNIT_TEST(new_members_are_counted)
{
    job_runs(2, 2, 2, 4);
    assert_int_equal(elastic_count_new(&e), 4);
    slot_fails(1, 7);
    leader_does("start 1, break");
    members_report();
    leader_does("form 2: 0 3 2");
    assert_int_equal(elastic_count_new(&e), 0);
    slot_reports(1);
    leader_does("notify added");
    members_report();
    leader_does("form 3: 0 3 2 1");
    assert_int_equal(elastic_count_new(&e), 1);
}

UNIT_TEST(a_new_leader_drains_what_was_drained)
{
    job_begin(1, 2, 1, 2);
    elastic_take_over(&e, 1, now + e.config.leave_ns);
    elastic_offer_slots(&e, 0, 1);
    leader_adopts(0, 6, 0, 2);
    leader_adopts(1, 6, 1, 2);
    now += 30 * S;
    leader_does("notify removed");
    members_report();
    leader_does("stop 1, form 65537: 0");
}

UNIT_MAIN(NULL, job_release)
