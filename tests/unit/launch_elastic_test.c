/* SPDX-License-Identifier: Apache-2.0 */
/* elastic.c, decision by decision. */
#include "tests/unit/launch_leader.h"

UNIT_TEST(the_first_world_waits_for_its_ranks)
{
    job_begin(2, 2, 3, 4);
    leader_does("");
    worker_comes(0);
    leader_does("start 0, start 1");
    slot_reports(0);
    slot_reports(1);
    leader_does("");
    worker_comes(1);
    leader_does("start 2, start 3");
    slot_reports(3);
    leader_does("form 1: 0 1 3");
}

UNIT_TEST(a_loss_costs_no_wait_and_the_replacement_joins_at_a_commit)
{
    job_runs(2, 2, 2, 4);
    slot_fails(1, 7);
    leader_does("start 1, break");
    slot_reports(0);
    slot_reports(2);
    leader_does("");
    slot_reports(3);
    leader_does("form 2: 0 3 2"); /* rank 2 stays, rank 3 fills the gap */
    slot_reports(1);
    leader_does("notify added");
    members_report();
    leader_does("form 3: 0 3 2 1");
}

UNIT_TEST(processes_that_start_together_join_together)
{
    job_begin(2, 2, 2, 4);
    worker_comes(0);
    leader_does("start 0, start 1");
    slot_reports(0);
    slot_reports(1);
    leader_does("form 1: 0 1");
    worker_comes(1);
    leader_does("start 2, start 3");
    slot_reports(2);
    leader_does("");
    assert_int_equal(elastic_next_ns(&e), now + 10 * S);
    slot_reports(3);
    leader_does("notify added");
}

UNIT_TEST(a_process_that_is_ready_waits_for_others_for_10_s)
{
    job_begin(2, 2, 2, 4);
    worker_comes(0);
    leader_does("start 0, start 1");
    slot_reports(0);
    slot_reports(1);
    leader_does("form 1: 0 1");
    worker_comes(1);
    leader_does("start 2, start 3");
    slot_reports(2);
    leader_does("");
    now += 10 * S - 1;
    leader_does("");
    now += 1;
    leader_does("notify added");
    assert_int_equal(elastic_next_ns(&e), UINT64_MAX);
}

UNIT_TEST(programs_without_worlds_run_to_their_ends)
{
    job_begin(1, 3, 3, 3);
    workers_come();
    leader_does("start 0, start 1, start 2");
    slot_succeeds(0);
    slot_reports(2);
    leader_does("stop 2"); /* it would wait for ever */
    slot_fails(2, 0);
    slot_succeeds(1);
    leader_does("end");
    assert_true(e.has_ended_well);
}

UNIT_TEST(programs_without_worlds_are_started_on_hosts_that_come_later)
{
    job_begin(3, 1, 3, 3);
    worker_comes(1);
    leader_does("start 1");
    slot_succeeds(1);
    leader_does("");
    worker_comes(0);
    leader_does("start 0");
    slot_succeeds(0);
    leader_does("");
    worker_comes(2);
    leader_does("start 2");
    slot_succeeds(2);
    leader_does("end");
    assert_true(e.has_ended_well);
}

UNIT_TEST(programs_without_worlds_whose_hosts_do_not_come_fail_the_job)
{
    job_begin(3, 1, 3, 3);
    worker_comes(1);
    leader_does("start 1");
    slot_succeeds(1);
    leader_does("");
    assert_true(elastic_next_ns(&e) == now + 600 * S);
    now += 600 * S;
    leader_does("end");
    assert_false(e.has_ended_well);
    assert_string_equal(e.why, "1 of 3 processes were started");
}

UNIT_TEST(a_job_of_fixed_size_waits_for_the_replacement)
{
    job_runs(2, 2, 4, 4);
    slot_fails(1, 7);
    leader_does("start 1, break");
    members_report();
    leader_does("");
    slot_reports(1);
    leader_does("form 2: 0 1 2 3"); /* all ranks as before */
}

UNIT_TEST(a_spare_takes_over_at_once)
{
    job_begin(3, 1, 2, 2);
    e.config.n_spares = 1;
    workers_come();
    leader_does("start 0, start 1, start 2");
    for (uint32_t i = 0; i < 3; i++)
        slot_reports(i);
    leader_does("form 1: 0 1");
    slot_fails(1, 7);
    leader_does("start 1, break");
    slot_reports(0);
    leader_does("form 2: 0 2");
}

UNIT_TEST(rank_0_is_the_oldest_process)
{
    job_runs(4, 1, 1, 4);
    slot_fails(1, 7);
    leader_does("start 1, break");
    members_report();
    leader_does("form 2: 0 3 2");
    slot_reports(1);
    leader_does("notify added");
    members_report();
    leader_does("form 3: 0 3 2 1");
    elastic_lose_worker(&e, 0, now);
    leader_does("break");
    members_report();
    leader_does("form 4: 3 1 2"); /* 1 is the youngest */
}

UNIT_TEST(a_member_that_does_not_leave_a_broken_world_is_stopped)
{
    job_runs(3, 1, 1, 3);
    slot_fails(1, 7);
    leader_does("start 1, break");
    slot_reports(2);
    leader_does("");
    assert_true(elastic_next_ns(&e) == now + 30 * S);
    now += 30 * S;
    leader_does("stop 0");
    slot_fails(0, 9); /* it was stopped: no cause */
    leader_does("start 0, form 2: 2");
    assert_int_equal(e.slots[0].n_failures, 0);
}

UNIT_TEST(a_slot_that_fails_again_by_the_same_cause_is_excluded)
{
    static const unsigned excluded_s[] = {10, 20, 25, 25};

    job_runs(3, 1, 1, 3);
    for (size_t i = 0; i < ARRAY_LEN(excluded_s); i++) {
        slot_fails(0, 7);
        job_settle();
        assert_int_equal(e.slots[0].state, SLOT_MEMBER);
        slot_fails(0, 7);
        job_settle();
        assert_int_equal(e.slots[0].state, SLOT_EXCLUDED);
        assert_int_equal(e.n_members, 2);
        elastic_take_commit(&e, e.generation);
        assert_true(elastic_next_ns(&e) == now + excluded_s[i] * S);
        now += excluded_s[i] * S - 1;
        leader_does("");
        now++;
        job_settle();
        assert_int_equal(e.slots[0].state, SLOT_MEMBER);
    }
}

UNIT_TEST(another_cause_or_a_consequence_does_not_exclude_a_slot)
{
    job_runs(2, 1, 1, 2);
    for (uint64_t cause = 1; cause < 9; cause++) {
        slot_fails(1, cause);
        job_settle();
        slot_fails(1, 0); /* another rank failed first */
        job_settle();
        assert_int_equal(e.slots[1].state, SLOT_MEMBER);
    }
}

UNIT_TEST(the_same_cause_three_times_without_a_commit_ends_the_job)
{
    static const uint32_t slots[] = {0, 1, 2}; /* not one bad slot */

    for (int with_commit = 0; with_commit < 2; with_commit++) {
        job_runs(3, 1, 1, 3);
        for (size_t i = 0; i < ARRAY_LEN(slots); i++) {
            slot_fails(slots[i], 7);
            job_settle();
            if (with_commit && i == 1)
                elastic_take_commit(&e, e.generation);
        }
        assert_int_equal(e.state, with_commit ? ELASTIC_RUNNING : ELASTIC_ENDED);
        assert_string_equal(
            e.why, with_commit ? ""
                               : "the same failure 3 times, without a commit in "
                                 "between");
    }
}

UNIT_TEST(a_cause_that_ends_all_processes_three_times_ends_the_job)
{
    for (int other = 0; other < 2; other++) {
        job_runs(2, 1, 1, 2);
        for (int i = 0; i < 3; i++) {
            elastic_take_commit(&e, e.generation); /* of a job that began again */
            slot_fails(0, other && i == 1 ? 8 : 7);
            slot_fails(1, other && i == 1 ? 8 : 7);
            job_settle();
        }
        assert_int_equal(e.state, other ? ELASTIC_RUNNING : ELASTIC_ENDED);
        assert_string_equal(
            e.why, other ? "" : "the same failure has ended all processes 3 times");
    }
}

UNIT_TEST(a_total_loss_of_a_world_that_worked_for_long_does_not_count)
{
    job_runs(2, 1, 1, 2);
    for (int i = 0; i < 5; i++) {
        now = e.formed_ns + 300 * S;
        elastic_take_commit(&e, e.generation);
        slot_fails(0, 7);
        slot_fails(1, 7);
        job_settle();
    }
    assert_int_equal(e.state, ELASTIC_RUNNING);
}

UNIT_TEST(a_survivor_ends_the_row_of_total_losses)
{
    job_runs(2, 1, 1, 2);
    for (int i = 0; i < 5; i++) {
        elastic_take_commit(&e, e.generation);
        slot_fails(0, i % 2 ? 7 : 9);
        job_settle();
    }
    assert_int_equal(e.state, ELASTIC_RUNNING);
    assert_int_equal(e.n_totals, 0);
}

UNIT_TEST(a_commit_of_an_earlier_world_does_not_count)
{
    job_runs(3, 1, 1, 3);
    for (uint32_t i = 0; i < 3; i++) {
        slot_fails(i, 7);
        job_settle();
        elastic_take_commit(&e, e.generation - 1);
    }
    assert_int_equal(e.state, ELASTIC_ENDED);
}

/* As with a module that is missing: each process of each slot. */
UNIT_TEST(a_program_that_cannot_start_ends_the_job_soon)
{
    job_begin(4, 2, 8, 8);
    workers_come();
    leader_does(
        "start 0, start 1, start 2, start 3, start 4, start 5, start 6, start 7");
    for (int n = 0; n < 2; n++)
        for (uint32_t i = 0; i < 8; i++) {
            slot_fails(i, 7);
            assert_int_equal(e.slots[i].state, SLOT_IDLE);
            assert_true(elastic_next(&e, now, &(struct elastic_action){.slot = 0}));
        }
    slot_fails(0, 7);
    leader_does("end");
    assert_false(e.has_ended_well);
    leader_does("");
}

UNIT_TEST(a_job_below_its_minimum_waits_with_a_deadline_and_says_for_what)
{
    job_runs(3, 2, 4, 6);
    now += 100 * S;
    elastic_lose_worker(&e, 1, now);
    elastic_lose_worker(&e, 2, now);
    leader_does("break");
    members_report();
    leader_does("");
    assert_true(elastic_next_ns(&e) == now + 600 * S);
    now += 600 * S - 1;
    leader_does("");
    now++;
    leader_does("end");
    assert_string_equal(e.why,
                        "2 of at least 4 ranks are ready, 2 of 3 workers are absent");
    assert_true(elastic_next_ns(&e) == UINT64_MAX);
}

UNIT_TEST(a_world_forms_while_a_process_that_has_failed_still_exists)
{
    job_runs(3, 1, 1, 3);
    slot_reports_end(1);
    leader_does("break");
    members_report();
    leader_does("form 2: 0 2");
    now += 29 * S;
    leader_does("");
    slot_fails(1, 7);
    leader_does("start 1");
    assert_int_equal(e.state, ELASTIC_RUNNING); /* its end breaks nothing more */
    slot_reports(1);
    leader_does("notify added");
}

UNIT_TEST(a_process_that_has_failed_and_does_not_end_is_stopped)
{
    job_runs(3, 1, 1, 3);
    slot_reports_end(1);
    leader_does("break");
    members_report();
    leader_does("form 2: 0 2");
    assert_true(elastic_next_ns(&e) == now + e.config.leave_ns);
    now += e.config.leave_ns;
    leader_does("stop 1");
    assert_true(elastic_next_ns(&e) == UINT64_MAX);
    slot_fails(1, 0);
    leader_does("start 1");
}

UNIT_TEST(an_end_that_is_reported_late_or_twice_changes_nothing)
{
    job_runs(2, 1, 1, 2);
    slot_reports(1); /* it waits: its world was broken before */
    elastic_take_ending(&e, 1, slot_incarnation(1), 1, now);
    leader_does("break");
    members_report();
    leader_does("form 2: 0 1");
    elastic_take_ending(&e, 1, slot_incarnation(1), 1, now); /* of the last world */
    elastic_take_ending(&e, 1, 9, 2, now);                   /* of no such process */
    leader_does("");
    slot_reports_end(1);
    slot_reports_end(1);
    slot_reports(1);
    leader_does("break");
    members_report();
    leader_does("form 3: 0 1");
}

UNIT_TEST(failures_of_a_slot_that_are_far_apart_do_not_exclude_it)
{
    job_runs(2, 1, 1, 2);
    for (int n = 0; n < 3; n++) {
        slot_fails(1, 7);
        assert_int_equal(e.slots[1].n_failures, 1);
        job_settle();
        elastic_take_commit(&e, e.generation);
        now += 3600 * S;
    }
    now--;
    slot_fails(1, 7);
    assert_int_equal(e.slots[1].state, SLOT_EXCLUDED);
}

UNIT_TEST(a_failure_that_is_reported_before_the_end_counts_once)
{
    job_runs(2, 1, 1, 2);
    for (int n = 0; n < 2; n++) {
        assert_int_equal(e.slots[1].n_failures, n);
        slot_reports_end(1);
        slot_fails(1, 7);
        job_settle();
    }
    assert_int_equal(e.slots[1].state, SLOT_EXCLUDED);
    assert_int_equal(e.slots[1].n_failures, 0);
}

UNIT_TEST(a_process_of_an_earlier_world_may_end_after_the_job)
{
    job_runs(2, 1, 1, 2);
    slot_reports_end(1);
    leader_does("break");
    members_report();
    leader_does("form 2: 0");
    slot_succeeds(0);
    leader_does("");
    slot_fails(1, 7);
    leader_does("end");
    assert_true(e.has_ended_well);
}

UNIT_TEST(a_failure_while_others_end_well_fails_the_job)
{
    job_runs(2, 1, 1, 2);
    slot_succeeds(0);
    slot_reports_end(1);
    leader_does("");
    slot_fails(1, 7);
    leader_does("end");
    assert_false(e.has_ended_well);
}

UNIT_TEST(resets_are_limited)
{
    job_runs(2, 1, 1, 2);
    e.config.reset_limit = 2;
    for (uint64_t i = 1; i <= 3; i++) {
        slot_fails(1, i);
        leader_does("start 1, break");
        members_report();
        leader_does(i == 1 ? "form 2: 0" : i == 2 ? "form 3: 0" : "end");
        slot_fails(1, 0);
        leader_does(i == 3 ? "" : "start 1");
        e.members[1] = 1; /* as if it had joined */
        e.slots[1].state = i == 3 ? SLOT_IDLE : SLOT_MEMBER;
    }
    assert_string_equal(e.why, "the world was reset 2 times, the limit is 2");
}

UNIT_TEST(success_of_one_ends_the_job_when_all_have_ended)
{
    job_begin(4, 1, 2, 2);
    e.config.n_spares = 1;
    workers_come();
    leader_does("start 0, start 1, start 2");
    slot_reports(0);
    slot_reports(1);
    leader_does("form 1: 0 1");
    slot_reports(2);
    slot_succeeds(1);
    leader_does("stop 2");
    slot_fails(2, 0);
    leader_does("");
    slot_succeeds(0);
    leader_does("end");
    assert_true(e.has_ended_well);
}

UNIT_TEST(a_failure_after_a_success_is_the_end_of_the_job)
{
    job_runs(2, 1, 2, 2);
    slot_succeeds(1);
    slot_fails(0, 7);
    leader_does("end");
    assert_false(e.has_ended_well);
    assert_string_equal(e.why,
                        "a rank failed after another one had ended with success");
}

UNIT_TEST(a_member_that_does_not_end_is_stopped)
{
    job_runs(3, 1, 2, 3);
    slot_succeeds(1);
    leader_does("");
    now += 200 * S;
    slot_succeeds(2); /* the deadline stays */
    leader_does("");
    now += 400 * S;
    leader_does("stop 0");
    slot_fails(0, 0);
    leader_does("end");
    assert_true(e.has_ended_well);
}

UNIT_TEST(a_job_is_resized_at_a_commit)
{
    struct err err = ERR_INIT;

    job_runs(4, 1, 1, 2);
    assert_int_equal(e.n_members, 2);
    assert_int_equal(elastic_resize(&e, 1, 4, &err), 0);
    leader_does("start 2, start 3");
    slot_reports(2);
    slot_reports(3);
    leader_does("notify added");
    members_report();
    leader_does("form 2: 0 1 2 3");
    assert_int_equal(elastic_resize(&e, 1, 3, &err), 0);
    leader_does("notify removed");
    members_report();
    leader_does("form 3: 0 1 2, stop 3");
    assert_int_equal(elastic_resize(&e, 3, 2, &err), -EINVAL);
    assert_string_equal(err.text,
                        "3, 3 and 2 ranks at least, at the start and at most: "
                        "not in this order, or less than 1");
    assert_int_equal(e.config.max_ranks, 3);
}

UNIT_TEST(the_size_that_a_list_allows_is_never_less_than_the_job_needs)
{
    job_runs(4, 1, 2, 4);
    elastic_set_max(&e, 3);
    leader_does("notify removed");
    members_report();
    leader_does("form 2: 0 1 2, stop 3");
    elastic_set_max(&e, 0);
    assert_int_equal(e.config.max_ranks, 2);
    e.generation = 0; /* the first world has start_ranks */
    e.config.start_ranks = 3;
    elastic_set_max(&e, 0);
    assert_int_equal(e.config.max_ranks, 3);
}

/* Its state is older than that of others, and it would be the oldest process. */
UNIT_TEST(a_process_that_a_world_leaves_out_is_replaced)
{
    struct err err = ERR_INIT;

    job_runs(3, 1, 1, 3);
    e.config.n_spares = 1;
    assert_int_equal(elastic_resize(&e, 1, 2, &err), 0);
    leader_does("notify removed");
    members_report();
    leader_does("form 2: 0 1, stop 2");
    slot_fails(2, 0);
    leader_does("start 2"); /* the spare */
    slot_reports(2);
    slot_fails(0, 7);
    slot_fails(1, 7);
    leader_does("start 0, start 1, form 3: 2");
    assert_int_equal(elastic_count_new(&e), 1);
}

UNIT_TEST(bounds_that_make_no_sense_are_refused)
{
    static const struct {
        struct elastic_config c;
        const char *why;
    } rows[] = {
        {{.n_workers = 1, .slots = 1, .start_ranks = 1, .min_ranks = 0, .max_ranks = 1},
         "0, 1 and 1 ranks at least, at the start and at most: not in this order, or "
         "less "
         "than 1"},
        {{.n_workers = 1, .slots = 1, .start_ranks = 3, .min_ranks = 1, .max_ranks = 2},
         "1, 3 and 2 ranks at least, at the start and at most: not in this order, or "
         "less "
         "than 1"},
        {{.n_workers = 0, .slots = 1, .start_ranks = 1, .min_ranks = 1, .max_ranks = 1},
         "0 workers of 1 slots are not 1 to 65536 slots"},
        {{.n_workers = 65536,
          .slots = 2,
          .start_ranks = 1,
          .min_ranks = 1,
          .max_ranks = 1},
         "65536 workers of 2 slots are not 1 to 65536 slots"},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct elastic x;
        struct err err = ERR_INIT;

        assert_int_equal(elastic_init(&x, &rows[i].c, 0, &err), -EINVAL);
        assert_string_equal(err.text, rows[i].why);
        elastic_release(&x);
    }
}

UNIT_MAIN(NULL, job_release)
