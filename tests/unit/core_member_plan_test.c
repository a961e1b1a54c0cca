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
    assert_int_equal(member_next(f->m, false, CALL_NONE, &f->act, &f->err), 0);
    assert_int_equal(f->act.kind, MEMBER_NOTHING);
    member_leave_plan(f->m);
    assert_int_equal(member_next(f->m, false, CALL_NONE, &f->act, &f->err), 0);
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

/* --- process sets: this rank is in 1, not in 2 --- */

static const uint8_t SLOTS_0_1_2[] = {0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0};

static void learn_in(struct fixture *f, uint32_t i, const char *name, uint32_t set)
{
    struct down d = down_whole(name, i);

    d.req.process_set = set;
    if (set != 2) {
        f->reqs[i] = d.req;
        f->ops[i] = (struct member_op){.req = &f->reqs[i]};
        assert_int_equal(member_submit(f->m, &f->ops[i]), 0);
        while (member_take_up(f->m, &f->up))
            ;
    }
    down_send(f, d);
    if (set != 2)
        assert_runs(f, &f->ops[i]);
    assert_int_equal(member_next_kind(f), MEMBER_NOTHING);
}

static void submit_again(struct fixture *f, uint32_t i)
{
    f->ops[i] = (struct member_op){.req = &f->reqs[i]};
    assert_int_equal(member_submit(f->m, &f->ops[i]), 0);
}

/* "a" of the world, "x" of others, "y" of a set of ours: places 0, 1, 2. */
static void plan_of_sets(struct fixture *f)
{
    assert_int_equal(member_set_added(f->m, 1, true), 0);
    assert_int_equal(member_set_added(f->m, 2, false), 0);
    learn_in(f, 0, "a", 0);
    learn_in(f, 1, "x", 2);
    learn_in(f, 2, "y", 1);
    down_send(f, down_freeze(1, SLOTS_0_1_2, 3));
    assert_int_equal(member_next_kind(f), MEMBER_NOTHING);
    assert_true(member_has_set_plan(f->m));
    assert_int_equal(member_plan_size(f->m), 2);
}

static enum member_kind next_if(struct fixture *f, bool may_offer, enum agree_call call)
{
    assert_int_equal(member_next(f->m, may_offer, call, &f->act, &f->err), 0);
    return f->act.kind;
}

MEMBER_TEST(an_offer_without_an_answer_is_not_repeated)
{
    plan_of_sets(f);
    submit_again(f, 2);
    assert_int_equal(next_if(f, false, CALL_NONE), MEMBER_NOTHING); /* gathers */
    assert_int_equal(next_if(f, true, CALL_NONE), MEMBER_AGREE);
    assert_true(f->act.calls);
    assert_int_equal(f->act.words[0], 1 | 4 | 8);
    assert_true(member_agree(f, 1));
    assert_true(member_has_offer(f->m));
    assert_int_equal(next_if(f, true, CALL_NONE), MEMBER_NOTHING);
    assert_int_equal(next_if(f, true, CALL_STARTED), MEMBER_AGREE);
    assert_false(f->act.calls);
    assert_false(member_agree(f, 1 | 8));
    assert_runs(f, &f->ops[2]);
    assert_int_equal(member_next_kind(f), MEMBER_NOTHING);
}

MEMBER_TEST(a_set_does_not_wait_for_an_agreement_of_the_world)
{
    plan_of_sets(f);
    submit_again(f, 0);
    assert_int_equal(member_next_kind(f), MEMBER_AGREE);
    assert_false(f->act.calls); /* all are to have a: they come */
    assert_false(member_wants_call(f->m));
    submit_again(f, 2);
    assert_true(member_wants_call(f->m));
    assert_true(member_agree(f, 1));
    assert_int_equal(member_next_kind(f), MEMBER_AGREE);
    assert_true(f->act.calls);
    assert_int_equal(f->act.words[0], 1 | 2 | 4 | 8);
    member_leave_plan(f->m);
    assert_true(member_wants_call(f->m));
    assert_false(member_agree(f, 1 | 2 | 4 | 8)); /* not with this one */
    assert_runs(f, &f->ops[0]);
    assert_runs(f, &f->ops[2]);
    assert_int_equal(member_next_kind(f), MEMBER_AGREE);
    assert_true(f->act.calls);
    assert_int_equal(f->act.words[0], 4);
    assert_false(member_agree(f, 4));
    assert_false(member_has_set_plan(f->m));
}

/* A set that this rank is in, though nothing of it was ever answered here. */
MEMBER_TEST(a_plan_of_what_this_rank_never_had_is_refused)
{
    assert_int_equal(member_set_added(f->m, 2, false), 0);
    learn_in(f, 0, "x", 2);
    member_set_removed(f->m, 2);
    assert_int_equal(member_set_added(f->m, 2, true), 0);
    down_send(f, down_freeze(1, SLOTS_0_1, 1));
    assert_int_equal(member_next(f->m, true, CALL_NONE, &f->act, &f->err), -EPROTO);
    assert_string_equal(f->err.text,
                        "rank 0 plans slot 0, which this rank does not have");
}

UNIT_MAIN(NULL, NULL)
