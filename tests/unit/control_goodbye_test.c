/* SPDX-License-Identifier: Apache-2.0 */
/* Goodbyes in the control tree: all ranks receive the same, and no rank that leaves counts as
 * lost, whichever rank is between it and rank 0. The tree is that of control_tree_test.c.
 */
#include "tests/unit/control_world.h"

static void leave_one(uint32_t who, enum leave_reason why)
{
    const char *want = rank_text(three_hosts[who], who,
                                 why == LEAVE_EXIT ? " exited" : " called shutdown()");

    world_up(three_hosts);
    world_send_order(who, ORDER_UP, who > 0 ? 50 : 0, 9, NULL); /* never overtaken */
    world_send_order(who, ORDER_LEAVE, why, 0, NULL);
    for (uint32_t r = 0; r < world.size; r++) {
        wait_for(&board->seen[r].n_ended, 1);
        assert_string_equal(seen_of(r)->ended, want);
        assert_false(seen_of(r)->is_end_failure);
    }
    assert_int_equal(atomic_load(&seen_of(0)->n_ups), who > 0 ? 50 : 0);
    for (uint32_t r = 0; r < world.size; r++) { /* from above, the worst order */
        world_send_order(r, ORDER_LEAVE, LEAVE_SHUTDOWN, 0, NULL);
        world_send_order(r, ORDER_CLOSE, 0, 0, NULL);
        wait_for(&board->seen[r].stage, 4); /* and not 3: no rank was lost */
        assert_string_equal(seen_of(r)->cause, "");
    }
    world_close();
}

/* Rank 1 has three levels below it and learns when it has forwarded the last report. */
UNIT_TEST(reports_follow_a_goodbye)
{
    world_up(three_hosts);
    world_send_order(14, ORDER_LEAVE, LEAVE_SHUTDOWN, 0, NULL);
    for (uint32_t r = 0; r < world.size; r++)
        wait_for(&board->seen[r].n_ended, 1);
    for (uint32_t r = 1; r < world.size; r++) {
        assert_false(atomic_load(&seen_of(0)->has_reports));
        world_send_order(r, ORDER_REPORT, 0, 0, NULL);
    }
    wait_for(&board->seen[0].n_reports, world.size - 1);
    wait_for(&board->seen[0].has_reports, 1);
    wait_for(&board->seen[1].has_reports, 1);
    assert_true(atomic_load(&seen_of(14)->has_reports));
    world_close();
}

/* Of a program that failed: all ranks get how, cleaned, and what was sent before. */
UNIT_TEST(a_goodbye_says_how_the_program_failed)
{
    static const uint32_t ranks[] = {0, 1, 5, 14};
    static const char how[] =
        "ended: ValueError: bad\033[31m\n\x9b \xe2\x80\xae caf\xc3\xa9";
    char want[128];

    for (size_t i = 0; i < ARRAY_LEN(ranks); i++) {
        uint32_t who = ranks[i];

        (void)snprintf(want, sizeof(want), "%s",
                       rank_text(three_hosts[who], who,
                                 " ended: ValueError: bad [31m ? ? caf\xc3\xa9"));
        world_up(three_hosts);
        world_send_order(who, ORDER_UP, who > 0 ? 50 : 0, 9, NULL);
        world_send_order(who, i % 2 ? ORDER_HURRY : ORDER_LEAVE, LEAVE_SHUTDOWN, 0,
                         how);
        for (uint32_t r = 0; r < world.size; r++) {
            if (r == who)
                continue;
            wait_for(&board->seen[r].n_ended, 1);
            assert_string_equal(seen_of(r)->ended, want);
            assert_true(seen_of(r)->is_end_failure);
            assert_int_equal(atomic_load(&seen_of(r)->stage), 2); /* no rank was lost */
        }
        if (who > 0)
            assert_int_equal(atomic_load(&seen_of(0)->n_ups), 50);
        world_close();
    }
}

/* Rank 0 does not trust that the rank has cleaned it. */
UNIT_TEST(a_goodbye_of_another_make_is_cleaned)
{
    world_up(one_host);
    world_send_order(14, ORDER_RAW, 0, 0, "\1ended: \033[31m\nrank 2");
    for (uint32_t r = 0; r < world.size; r++) {
        wait_for(&board->seen[r].n_ended, 1);
        assert_string_equal(seen_of(r)->ended,
                            "rank 14 (host a, pid 1014) ended: [31m rank 2");
    }
    world_close();
}

/* A longer text is cut, never refused: the rank would count as lost. */
UNIT_TEST(a_long_goodbye_is_cut)
{
    char how[390];

    memset(how, 'x', sizeof(how) - 1);
    how[sizeof(how) - 1] = '\0';
    world_up(one_host);
    world_send_order(14, ORDER_LEAVE, LEAVE_EXIT, 0, how);
    for (uint32_t r = 0; r < world.size; r++) {
        wait_for(&board->seen[r].n_ended, 1);
        assert_memory_equal(seen_of(r)->ended, "rank 14 (host a, pid 1014) xxx", 30);
        assert_int_equal(strlen(seen_of(r)->ended), 27 + GOODBYE_HOW_BYTES - 1);
    }
    world_close();
}

UNIT_TEST(a_goodbye_reaches_all)
{
    leave_one(0, LEAVE_SHUTDOWN);
    leave_one(1, LEAVE_EXIT);
    leave_one(5, LEAVE_SHUTDOWN);
    leave_one(14, LEAVE_EXIT);
}

/* A rank that leaves without waiting for rank 0's message: its children get the message from it. */
UNIT_TEST(a_hurried_goodbye_is_no_loss)
{
    static const uint32_t ranks[] = {1, 6, 14};

    for (size_t i = 0; i < ARRAY_LEN(ranks); i++) {
        world_up(one_host);
        world_send_order(ranks[i], ORDER_HURRY, LEAVE_EXIT, 0, NULL);
        for (uint32_t r = 0; r < world.size; r++) {
            if (r == ranks[i])
                continue;
            wait_for(&board->seen[r].n_ended, 1);
            assert_string_equal(seen_of(r)->ended, rank_text('a', ranks[i], " exited"));
            assert_int_equal(atomic_load(&seen_of(r)->stage), 2);
        }
        world_close();
    }
}

/* While rank 0 is busy elsewhere, one has left and gone; that is no loss. */
UNIT_TEST(a_rank_that_has_left_is_not_missed)
{
    world_up(one_host);
    wait_for(&board->seen[6].n_open, 3);
    assert_int_equal(kill(world.pid[0], SIGSTOP), 0);
    world_send_order(14, ORDER_HURRY, LEAVE_EXIT, 0, NULL);
    wait_for(&board->seen[6].n_open, 2);
    assert_false(atomic_load(&seen_of(6)->is_suspicious));
    world_close();
}

/* A loss that is reported after a goodbye is none, though no verdict ever comes. */
UNIT_TEST(a_loss_after_a_goodbye_is_forgotten)
{
    world_up(one_host);
    wait_for(&board->seen[6].n_open, 3);
    assert_int_equal(kill(world.pid[0], SIGSTOP), 0);
    world_send_order(1, ORDER_LEAVE, LEAVE_EXIT, 0, NULL);
    wait_for(&board->seen[1].n_done, 1);
    assert_int_equal(kill(world.pid[14], SIGKILL), 0);
    wait_for(&board->seen[6].n_open, 2);
    assert_true(atomic_load(&seen_of(6)->is_suspicious));
    assert_int_equal(kill(world.pid[0], SIGCONT), 0);
    for (uint32_t r = 0; r < world.size - 1; r++) {
        wait_for(&board->seen[r].n_ended, 1);
        assert_string_equal(seen_of(r)->ended, "rank 1 (host a, pid 1001) exited");
    }
    wait_for(&board->seen[6].is_suspicious, 0);
    assert_int_equal(atomic_load(&seen_of(6)->stage), 2);
    world_close();
}

/* The head of a host dies while others say goodbye: in either order, no rank waits.
 */
UNIT_TEST(a_death_among_goodbyes_leaves_nobody_waiting)
{
    for (uint32_t leaver = 0; leaver < 15; leaver += 2) {
        uint64_t t0;

        world_up(three_hosts);
        t0 = clock_now_ns();
        world_send_order(leaver, ORDER_LEAVE, LEAVE_SHUTDOWN, 0, NULL);
        assert_int_equal(kill(world.pid[5], SIGKILL), 0);
        for (uint32_t r = 0; r < world.size; r++) {
            const struct seen *s = seen_of(r);

            if (r == 5)
                continue;
            while (!atomic_load(&s->n_ended) && atomic_load(&s->stage) < 3
                   && clock_now_ns() < t0 + LIMIT_S * NS_PER_S)
                (void)poll(NULL, 0, 1);
            assert_true(s->over_ns < t0 + 20 * NS_PER_S); /* silence is 30 s */
            if (!atomic_load(&s->n_ended))
                assert_string_equal(
                    s->cause, "rank 5 (host b, pid 1005) was lost: connection closed");
        }
        world_close();
    }
}

UNIT_MAIN(NULL, NULL)
