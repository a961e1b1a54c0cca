/* SPDX-License-Identifier: Apache-2.0 */
/* One rank's part of the frozen plan: what it offers and when. What it submits again
 * after a plan is core_sim_test's. */
#include "tests/unit/member_fixture.h"

MEMBER_TEST(a_plan_needs_agreements_only)
{
    member_learn(f, "ab");
    down_send(f, down_freeze(1, SLOTS_0_1, 2));
    assert_int_equal(member_next_kind(f), MEMBER_NOTHING);
    assert_true(member_is_in_plan(f->m));
    for (int step = 0; step < 3; step++) {
        (void)member_submit_op(f, 1, "b");
        assert_true(member_has_offer(f->m));
        assert_int_equal(member_next_kind(f), MEMBER_AGREE);
        assert_int_equal(f->act.n_words, 1);
        assert_int_equal(f->act.words[0], 1 | 4);
        (void)member_submit_op(f, 0, "a"); /* too late for this one */
        assert_int_equal(member_next_kind(f), MEMBER_NOTHING);
        assert_true(member_agree(f, 1)); /* others do not have it yet */
        assert_int_equal(member_next_kind(f), MEMBER_AGREE);
        assert_int_equal(f->act.words[0], 1 | 2 | 4);
        assert_false(member_agree(f, 1 | 2 | 4));
        assert_true(member_has_todo(f->m));
        assert_runs(f, &f->ops[0]); /* in the plan's order */
        assert_runs(f, &f->ops[1]);
        assert_int_equal(member_next_kind(f), MEMBER_NOTHING);
        assert_sends(f, "");
    }
    assert_int_equal(member_counts(f->m).n_planned, 6);
    assert_int_equal(member_counts(f->m).n_empty, 3);
    assert_int_equal(member_counts(f->m).n_rounds, 6);
}

MEMBER_TEST(an_offer_may_be_put_off)
{
    member_learn(f, "a");
    down_send(f, down_freeze(1, SLOTS_0_1, 1));
    (void)member_submit_op(f, 0, "a");
    assert_int_equal(member_next(f->m, false, &f->act, &f->err), 0);
    assert_int_equal(f->act.kind, MEMBER_NOTHING);
    member_leave_plan(f->m);
    assert_int_equal(member_next(f->m, false, &f->act, &f->err), 0);
    assert_int_equal(f->act.kind, MEMBER_AGREE);
    assert_int_equal(f->act.words[0], 2);
}

MEMBER_TEST(a_join_is_sent_again_after_the_plan)
{
    member_learn(f, "ab");
    (void)member_submit_op(f, 0, "a");
    (void)member_submit_group(f, 2, COLL_JOIN, "join", 0);
    assert_sends(f, "2: #0 join");
    down_send(f, down_freeze(1, SLOTS_0_1, 2));
    assert_int_equal(member_next_kind(f), MEMBER_AGREE);
    assert_int_equal(f->act.words[0], 2);
    assert_false(member_agree(f, 0));
    assert_sends(f, "3: #0 join");
}

/* --- process sets --- */

/* This rank learns a tensor of a set: its own, or one that only others submit. */
static void learn_in(struct fixture *f, uint32_t slot, uint32_t set, bool is_ours)
{
    struct down d = down_whole("x", slot);

    d.req.process_set = set;
    if (is_ours) {
        f->reqs[slot] = d.req;
        f->ops[slot] = (struct member_op){.req = &f->reqs[slot]};
        assert_int_equal(member_submit(f->m, &f->ops[slot]), 0);
        while (member_take_up(f->m, &f->up))
            ;
    }
    down_send(f, d);
    if (is_ours)
        assert_runs(f, &f->ops[slot]);
    assert_int_equal(member_next_kind(f), MEMBER_NOTHING);
}

MEMBER_TEST(a_tensor_of_a_set_is_a_reason_to_leave)
{
    assert_int_equal(member_set_added(f->m, 1, true), 0);
    member_learn(f, "ab");
    learn_in(f, 2, 1, true);
    down_send(f, down_freeze(1, SLOTS_0_1, 2));
    assert_int_equal(member_next_kind(f), MEMBER_NOTHING);
    assert_int_equal(member_plan_size(f->m), 2);
    f->ops[2] = (struct member_op){.req = &f->reqs[2]};
    assert_int_equal(member_submit(f->m, &f->ops[2]), 0);
    assert_sends(f, "4: leave 1");
    assert_int_equal(member_next_kind(f), MEMBER_AGREE);
    assert_int_equal(f->act.words[0], 0);
    assert_false(member_agree(f, 0));
    assert_int_equal(member_plan_size(f->m), 0);
    assert_sends(f, "4: #2");
}

static void assert_refuses_plan(struct fixture *f)
{
    down_send(f, down_freeze(1, SLOTS_0_1, 1));
    assert_int_equal(member_next(f->m, true, &f->act, &f->err), -EPROTO);
    assert_string_equal(f->err.text,
                        "rank 0 plans slot 0, which this rank does not have");
}

MEMBER_TEST(a_plan_with_a_tensor_of_a_set_is_refused)
{
    assert_int_equal(member_set_added(f->m, 1, true), 0);
    learn_in(f, 0, 1, true);
    assert_refuses_plan(f);
}

MEMBER_TEST(a_plan_of_what_this_rank_never_had_is_refused)
{
    assert_int_equal(member_set_added(f->m, 2, false), 0);
    learn_in(f, 0, 2, false);
    assert_refuses_plan(f);
}

UNIT_MAIN(NULL, NULL)
