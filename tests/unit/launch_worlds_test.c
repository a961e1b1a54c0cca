/* SPDX-License-Identifier: Apache-2.0 */
/* meet.c: jobs that are scaled. What makes another world, and which failures it undoes.
 */
#include "tests/unit/launch_fixture.h"

#define LEAVE (MEET_LEAVE_MS * MS)

static void world_start(struct meet *m, uint32_t workers, uint32_t slots)
{
    meet_start(m, workers, slots);
    meet_know_world(m, 4, true);
}

static int meet_send_world(struct meet *m, uint32_t generation, uint32_t workers)
{
    struct err err = ERR_INIT;
    struct job_world w = {generation, workers};
    return meet_take_world(m, &w, &err);
}

static void meet_form(struct meet *m, uint64_t now_ns)
{
    struct err err = ERR_INIT;
    assert_true(meet_reforms(m));
    assert_int_equal(meet_reform(m, now_ns, &err), 0);
    assert_int_equal(m->state, MEET_WAITING);
    assert_false(meet_reforms(m));
}

/* A job with a world file whose ranks run. */
static void world_run(struct meet *m, uint32_t workers, uint32_t slots)
{
    world_start(m, workers, slots);
    meet_run(m);
}

/* A newer world is announced and formed. */
static void
meet_change(struct meet *m, uint32_t generation, uint32_t workers, uint64_t now_ns)
{
    assert_int_equal(meet_send_world(m, generation, workers), 1);
    meet_form(m, now_ns);
}

UNIT_TEST(only_a_newer_world_counts)
{
    static const struct {
        uint32_t generation, workers;
        int rc;
    } t[] = {{4, 3, 0},
             {3, 9, 0},
             {0, 1, 0},
             {5, 3, 1},
             {5, 3, 0},
             {5, 7, 0},
             {9, 1, 1},
             {8, 2, 0},
             {10, 0, -EINVAL},
             {10, 65537, -EINVAL},
             {10, 65536, -EINVAL},
             {UINT32_MAX, 2, 1},
             {10, 2, 0}};
    CLEANUP(meet_release) struct meet m;
    struct err err = ERR_INIT;
    world_start(&m, 3, 17); /* 65536 workers of 17 slots are too many ranks */
    assert_false(meet_reforms(&m));
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct job_world w = {t[i].generation, t[i].workers};
        assert_int_equal(meet_take_world(&m, &w, &err), t[i].rc);
    }
    assert_true(meet_reforms(&m));
    assert_int_equal(m.wanted.workers, 2);
    meet_release(&m);
    assert_int_equal(meet_init(&m, 3, 1, 0, 60, 0, &err), 0); /* no world file */
    meet_know_world(&m, 4, false);
    assert_int_equal(meet_send_world(&m, 5, 2), -EINVAL);
    assert_int_equal(worker_join_world(&m, 1, 5, 3, &err), -EINVAL);
    assert_string_equal(err.text, "the job has generation 4 and cannot be scaled to "
                                  "generation 5: worker 0 has no HVD_WORLD_FILE");
    assert_false(meet_sends_world(&m, 4));
    meet_leaving(&m, 1, S);
    assert_int_equal(m.leave_until_ns, 0);
}

UNIT_TEST(all_workers_join_the_new_world)
{
    CLEANUP(meet_release) struct meet m;
    struct err err = ERR_INIT;
    world_run(&m, 2, 4);
    assert_int_equal(worker_join_world(&m, 2, 5, 3, &err),
                     -EAGAIN); /* brings the news */
    meet_form(&m, 100 * S);
    assert_int_equal(meet_ranks(&m), 12);
    assert_int_equal(meet_present(&m), 0);
    assert_int_equal(meet_deadline_ns(&m), 160 * S);
    assert_int_equal(worker_join_world(&m, 1, 4, 2, &err), -ESTALE);
    assert_true(meet_sends_world(&m, 4));
    assert_false(meet_sends_world(&m, 3)); /* before our time */
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(meet_due(&m, 1, 101 * S), MEET_WAITING);
        assert_int_equal(worker_join(&m, i, NULL), 0);
    }
    assert_int_equal(meet_due(&m, 1, 101 * S), MEET_RUNNING);
    meet_enter(&m, MEET_RUNNING);
    assert_int_equal(worker_join(&m, 2, NULL), -EALREADY);
    meet_change(&m, 6, 1, 200 * S);
    assert_int_equal(worker_join(&m, 1, NULL), -EINVAL); /* has no place in it */
    assert_int_equal(worker_join(&m, 0, NULL), 0);
    assert_int_equal(meet_due(&m, 1, 201 * S), MEET_RUNNING);
}

UNIT_TEST(a_worker_that_has_not_run_may_leave)
{
    CLEANUP(meet_release) struct meet m;
    world_start(&m, 2, 1);
    assert_int_equal(worker_join(&m, 1, NULL), 0);
    assert_true(meet_may_leave(&m, 0));
    assert_true(meet_may_leave(&m, 1));
    meet_lost(&m, 1, "gone", 1, S);
    assert_int_equal(meet_present(&m), 0);
    assert_null(meet_first(&m));
    meet_run(&m);
    assert_false(meet_may_leave(&m, 1));
    meet_change(&m, 5, 3, 2 * S);
    assert_false(meet_may_leave(&m, 1));
    assert_true(meet_may_leave(&m, 2)); /* a newcomer */
}

UNIT_TEST(the_number_of_ranks_is_of_the_first_world_alone)
{
    CLEANUP(meet_release) struct meet m;
    struct err err = ERR_INIT;
    struct hello h = {.worker = 1, .workers = 2, .slots = 4, .np = 5, .host = "w"};
    assert_int_equal(meet_init(&m, 2, 4, 5, 60, 0, &err), 0);
    meet_know_world(&m, 0, true);
    assert_int_equal(meet_hello(&m, &h, "a", &err), 0);
    meet_change(&m, 1, 2, 0);
    h.generation = 1;
    assert_int_equal(meet_hello(&m, &h, "a", &err), -EINVAL);
    h.np = 8;
    assert_int_equal(meet_hello(&m, &h, "a", &err), 0);
    h.np = 0;
    assert_int_equal(meet_hello(&m, &h, "a", &err), 0);
}

/* Failures that a new world drops: one at FAIL; worker 2 of 3 (2 slots: ranks 4 and 5)
 * starts to leave at LEFT; then a world with this number of workers. */
UNIT_TEST(a_world_without_leaving_workers_drops_failures)
{
    static const struct {
        const char *what;
        uint32_t rank;
        int32_t blames;
        uint64_t fail_ns, left_ns; /* 0: no worker leaves */
        uint32_t leaver, workers;
        bool is_undone;
    } t[] = {
        {"a rank that fails", 1, -1, 10 * S, 0, 0, 2, false},
        {"a rank that fails, a growing world", 1, -1, 10 * S, 0, 0, 4, false},
        {"a rank of the leaver", 4, -1, 10 * S, 10 * S + 1, 2, 2, true},
        {"a rank beside it, reported first", 3, -1, 10 * S, 10 * S + 1, 2, 2, true},
        {"one that names another", 0, 2, 10 * S, 10 * S + 1, 2, 2, true},
        {"any rank later", 0, -1, 10 * S, 10 * S, 2, 2, true},
        {"any rank much later", 0, -1, 10 * S, 1 * S, 2, 1, true},
        {"the leaver stays in the world", 4, -1, 10 * S, 9 * S, 2, 3, false},
        {"the leaver is in a larger one", 4, -1, 10 * S, 9 * S, 2, 5, false},
        {"worker 1 leaves, too small a change", 2, -1, 10 * S, 9 * S, 1, 2, false},
        {"worker 1 leaves", 2, -1, 10 * S, 9 * S, 1, 1, true},
        {"worker 0 never leaves", 0, -1, 10 * S, 9 * S, 0, 1, false},
        {"nor does one that is not there", 0, -1, 10 * S, 9 * S, 7, 1, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(t); i++)
        for (int order = 0; order < 2; order++) {
            CLEANUP(meet_release) struct meet m;
            struct report r = report_of((int32_t)t[i].rank, 1, 0, t[i].blames, 0);
            world_run(&m, 3, 2);
            bool is_first = t[i].left_ns && t[i].left_ns <= t[i].fail_ns;
            if (is_first)
                meet_leaving(&m, t[i].leaver, t[i].left_ns);
            if (order)
                assert_int_equal(meet_send_world(&m, 5, t[i].workers), 1);
            meet_failed(&m, &r, t[i].fail_ns);
            if (t[i].left_ns && !is_first)
                meet_leaving(&m, t[i].leaver, t[i].left_ns);
            if (!order)
                assert_int_equal(meet_send_world(&m, 5, t[i].workers), 1);
            if (meet_reforms(&m) != t[i].is_undone)
                fail_msg("%s", t[i].what);
            if (t[i].is_undone) {
                meet_form(&m, 11 * S);
                assert_null(meet_first(&m));
                assert_int_equal(meet_deadline_ns(&m), 71 * S);
            } else {
                assert_int_equal(meet_due(&m, 1, 10 * S + 2 * LEAVE), MEET_STOPPED);
                assert_int_equal(meet_first(&m)->f.rank, t[i].rank);
            }
        }
}

UNIT_TEST(failures_are_held_back_for_leaving_workers)
{
    CLEANUP(meet_release) struct meet m;
    struct report r = report_of(4, 1, 0, -1, 0);
    world_run(&m, 3, 2);
    meet_leaving(&m, 2, 20 * S);
    assert_int_equal(meet_deadline_ns(&m), UINT64_MAX); /* no failure yet */
    meet_failed(&m, &r, 21 * S);
    assert_int_equal(meet_deadline_ns(&m), 20 * S + LEAVE);
    assert_true(meet_holds(&m));
    assert_int_equal(meet_due(&m, 1, 20 * S + LEAVE - 1), MEET_RUNNING);
    meet_leaving(&m, 2, 25 * S); /* repeated */
    meet_leaving(&m, 1, 22 * S); /* another one */
    assert_int_equal(meet_deadline_ns(&m), 22 * S + LEAVE);
    assert_int_equal(meet_due(&m, 1, 22 * S + LEAVE), MEET_STOPPED);
    assert_int_equal(meet_first(&m)->f.rank, 4);
    meet_release(&m);
    world_run(&m, 3, 2);
    /* and stays, for example while its ranks save their work */
    meet_leaving(&m, 2, 20 * S);
    meet_failed(&m, &r, 90 * S);
    assert_int_equal(meet_deadline_ns(&m), 90 * S + VERDICT_WINDOW_MS * MS);
    assert_false(meet_holds(&m));
}

UNIT_TEST(a_lost_worker_has_left)
{
    CLEANUP(meet_release) struct meet m;
    world_run(&m, 3, 1);
    meet_lost(&m, 2, "its agent exited", 1, 20 * S);
    meet_lost(&m, 1, "its agent exited", 1, 20 * S); /* all others: still no hurry */
    assert_int_equal(meet_due(&m, 1, 20 * S + LEAVE - 1), MEET_RUNNING);
    assert_int_equal(meet_due(&m, 1, 20 * S + LEAVE), MEET_STOPPED);
    meet_change(&m, 5, 1, 25 * S);
    assert_int_equal(worker_join(&m, 0, NULL), 0);
    assert_int_equal(meet_due(&m, 1, 25 * S), MEET_RUNNING);
    meet_release(&m);
    world_run(&m, 3, 1);
    meet_lost(&m, 0, "its agent exited", 1,
              20 * S); /* the hub's own: no world without */
    assert_int_equal(meet_due(&m, 1, 20 * S + VERDICT_WINDOW_MS * MS), MEET_STOPPED);
}

UNIT_TEST(losses_while_a_world_is_formed)
{
    CLEANUP(meet_release) struct meet m;
    world_run(&m, 2, 1);
    meet_change(&m, 5, 3, 100 * S);
    assert_int_equal(worker_join(&m, 2, NULL), 0);
    meet_lost(&m, 2, "x", 1, 101 * S); /* a newcomer may come again */
    assert_null(meet_first(&m));
    assert_int_equal(worker_join(&m, 2, NULL), 0);
    assert_int_equal(worker_join(&m, 0, NULL), 0);
    meet_lost(&m, 1, "its agent exited", 1, 102 * S); /* one whose ranks have run may
                                                        not, here before its HELLO */
    assert_string_equal(meet_first(&m)->f.why,
                        "worker 1 (w-1) was lost: its agent exited");
    assert_int_equal(meet_due(&m, 1, 102 * S), MEET_WAITING);
    assert_int_equal(meet_due(&m, 1, 102 * S + LEAVE), MEET_STOPPED);
    meet_change(&m, 6, 1, 103 * S); /* but for a world without it */
    assert_null(meet_first(&m));
    assert_int_equal(worker_join(&m, 0, NULL), 0);
    assert_int_equal(meet_due(&m, 1, 103 * S), MEET_RUNNING);
    meet_enter(&m, MEET_RUNNING);
    meet_change(&m, 7, 2, 110 * S);
    assert_int_equal(worker_join(&m, 1, NULL),
                     0); /* another pod of this name: a newcomer */
    meet_lost(&m, 1, "x", 1, 111 * S);
    assert_null(meet_first(&m));
    assert_int_equal(meet_due(&m, 1, 170 * S), MEET_STOPPED);
    assert_non_null(strstr(meet_first(&m)->f.why, "waited 60 s for workers 0, 1 of 2"));
}

UNIT_TEST(a_worker_with_a_stop_signal_stays_leaving)
{
    CLEANUP(meet_release) struct meet m;
    struct report r = report_of(1, 1, 0, -1, 0);
    world_run(&m, 3, 1);
    meet_leaving(&m, 1, 20 * S);
    meet_change(&m, 5, 2, 21 * S); /* nothing has failed */
    meet_failed(&m, &r, 22 * S);
    assert_int_equal(meet_due(&m, 1, 22 * S), MEET_WAITING);
    meet_change(&m, 6, 1, 23 * S);
    assert_int_equal(m.leave_until_ns, 0);
}

UNIT_TEST(a_job_that_has_ended_forms_no_world)
{
    CLEANUP(meet_release) struct meet m;
    struct report r = report_of(1, 1, 0, -1, 0);
    world_run(&m, 2, 1);
    meet_done(&m, 0, 4);
    meet_done(&m, 1, 4);
    assert_int_equal(meet_send_world(&m, 5, 2), 1); /* before FINISH was sent */
    assert_false(meet_reforms(&m));
    assert_int_equal(meet_due(&m, 1, S), MEET_FINISHED);
    meet_enter(&m, MEET_FINISHED);
    assert_false(meet_reforms(&m));
    meet_release(&m);
    world_run(&m, 2, 1);
    meet_failed(&m, &r, S);
    assert_int_equal(meet_due(&m, 1, 2 * S), MEET_STOPPED);
    meet_enter(&m, MEET_STOPPED);
    assert_int_equal(meet_send_world(&m, 5, 1), 1);
    assert_false(meet_reforms(&m));
}

UNIT_TEST(messages_of_an_earlier_world)
{
    CLEANUP(meet_release) struct meet m;
    world_start(&m, 3, 1);
    meet_done(&m, 0, 4); /* nothing has run */
    meet_run(&m);
    meet_done(&m, 0, 4);
    meet_done(&m, 9, 4); /* who? */
    meet_change(&m, 5, 2, S);
    assert_int_equal(worker_join(&m, 0, NULL), 0);
    meet_done(&m, 1, 4); /* on their way when the world was formed */
    meet_done(&m, 2, 3); /* of no world that we know */
    meet_done(&m, 2, 5);
    assert_int_equal(meet_due(&m, 1, S), MEET_WAITING);
    meet_change(&m, 6, 1, S);
    meet_done(&m, 2, 4); /* so all had ended well, and the job is finished */
    assert_int_equal(meet_due(&m, 1, S), MEET_FINISHED);
    meet_release(&m);
    world_run(&m, 2, 1);
    meet_done(&m, 0, 4);
    meet_change(&m, 5, 2, S);
    meet_run(&m);
    meet_done(&m, 1, 4); /* too late: they run again */
    meet_done(&m, 1, 5);
    assert_int_equal(meet_due(&m, 1, S), MEET_RUNNING);
    meet_done(&m, 0, 5);
    assert_int_equal(meet_due(&m, 1, S), MEET_FINISHED);
}

UNIT_TEST(what_a_world_leaves_behind)
{
    CLEANUP(meet_release) struct meet m;
    struct report r = report_of(0, 1, 0, -1, 0);
    world_run(&m, 3, 1);
    assert_true(meet_counts(&m, 4));
    meet_done(&m, 0, 4);
    meet_change(&m, 5, 1, S);
    assert_false(meet_counts(&m, 4));
    assert_true(meet_counts(&m, 5));
    assert_true(meet_counts(&m, 6)); /* of an agent in a newer world */
    meet_change(&m, 6, 3, S);
    assert_int_equal(worker_join(&m, 2, NULL),
                     0); /* not the one that has run: it had to go */
    meet_lost(&m, 2, "x", 1, S);
    assert_null(meet_first(&m));
    meet_failed(&m, &r, 2 * S); /* worker 0 has not come yet, and may know the cause */
    assert_int_equal(meet_due(&m, 1, 2 * S), MEET_WAITING);
    assert_int_equal(meet_due(&m, 1, 2 * S + VERDICT_WINDOW_MS * MS), MEET_STOPPED);
    meet_release(&m);
    world_run(&m, 2, 1);
    meet_done(&m, 0, 4);
    meet_change(&m, 5, 2, S);
    meet_run(&m);
    meet_change(&m, 6, 2, S);
    meet_done(&m, 1, 5); /* worker 0 was done in another world */
    assert_int_equal(meet_due(&m, 1, S), MEET_WAITING);
}

UNIT_TEST(the_last_one_here_may_be_lost_and_not_needed)
{
    CLEANUP(meet_release) struct meet m;
    world_run(&m, 2, 1);
    meet_done(&m, 0, 4);
    meet_lost(&m, 1, "its agent exited", 1, 20 * S);
    assert_int_equal(meet_due(&m, 1, 20 * S + LEAVE - 1), MEET_RUNNING);
    meet_change(&m, 5, 1, 21 * S);
}

UNIT_MAIN(NULL, NULL)
