/* SPDX-License-Identifier: Apache-2.0 */
/* One rank's part of the frozen plan: what it offers, when it leaves, and what it then
 * submits again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/member_fixture.h"

static void a_plan_needs_agreements_only(void **state)
{
    struct fixture *f = *state;

    learn(f, "ab");
    tell(f, freeze(1, SLOTS_0_1, 2));
    assert_int_equal(next(f), MEMBER_NOTHING);
    assert_true(member_is_in_plan(f->m));
    for (int step = 0; step < 3; step++) {
        (void)submit(f, 1, "b");
        assert_true(member_has_offer(f->m));
        assert_int_equal(next(f), MEMBER_AGREE);
        assert_int_equal(f->act.n_words, 1);
        assert_int_equal(f->act.words[0], 1 | 4);
        (void)submit(f, 0, "a"); /* too late for this one */
        assert_int_equal(next(f), MEMBER_NOTHING);
        assert_true(agreed(f, 1)); /* others do not have it yet */
        assert_int_equal(next(f), MEMBER_AGREE);
        assert_int_equal(f->act.words[0], 1 | 2 | 4);
        assert_false(agreed(f, 1 | 2 | 4));
        assert_true(member_has_todo(f->m));
        assert_runs(f, &f->ops[0]); /* in the plan's order */
        assert_runs(f, &f->ops[1]);
        assert_int_equal(next(f), MEMBER_NOTHING);
        assert_tells(f, "");
    }
    assert_int_equal(member_counts(f->m).n_planned, 6);
    assert_int_equal(member_counts(f->m).n_empty, 3);
    assert_int_equal(member_counts(f->m).n_rounds, 6);
}

static void an_offer_may_be_put_off(void **state)
{
    struct fixture *f = *state;

    learn(f, "a");
    tell(f, freeze(1, SLOTS_0_1, 1));
    (void)submit(f, 0, "a");
    assert_int_equal(member_next(f->m, false, CALL_NONE, &f->act, &f->err), 0);
    assert_int_equal(f->act.kind, MEMBER_NOTHING);
    member_leave_plan(f->m);
    assert_int_equal(member_next(f->m, false, CALL_NONE, &f->act, &f->err), 0);
    assert_int_equal(f->act.kind, MEMBER_AGREE);
    assert_int_equal(f->act.words[0], 2);
}

/* Bits that were sent before the plan came are rank 0's no more. */
static void leaving_submits_again_what_the_plan_had(void **state)
{
    struct fixture *f = *state;

    learn(f, "ab");
    (void)submit(f, 0, "a");
    (void)submit(f, 2, "c");
    assert_tells(f, "2: #0 c");
    tell(f, freeze(4, SLOTS_0_1, 2));
    (void)submit(f, 1, "b");
    assert_tells(f, ""); /* the plan is to come */
    assert_int_equal(next(f), MEMBER_AGREE);
    assert_int_equal(f->act.words[0], 2 | 4); /* leaves: c is not of the plan */
    assert_tells(f, "3: leave 4");
    assert_tells(f, "");
    assert_false(agreed(f, 2 | 4));
    assert_false(member_is_in_plan(f->m));
    assert_int_equal(next(f), MEMBER_NOTHING); /* none of it was agreed */
    assert_tells(f, "3: #0 #1");               /* c is with rank 0 still */
    begin(f);
    put(f, (struct down){.kind = DOWN_LEAVE, .slot = SLOT_NONE, .plan = 4});
    put(f, whole("c", 2));
    assert_int_equal(receive(f), 0);
    assert_runs(f, &f->ops[2]);
    assert_int_equal(member_counts(f->m).n_leaves, 1);
}

static void all_leave_when_one_must(void **state)
{
    struct fixture *f = *state;

    learn(f, "ab");
    tell(f, freeze(1, SLOTS_0_1, 2));
    assert_int_equal(next(f), MEMBER_NOTHING);
    tell(f, (struct down){.kind = DOWN_LEAVE, .slot = SLOT_NONE, .plan = 1});
    assert_int_equal(member_next(f->m, false, CALL_NONE, &f->act, &f->err), 0);
    assert_int_equal(f->act.kind, MEMBER_AGREE); /* though it has nothing to offer */
    assert_int_equal(f->act.words[0], 0);
    assert_false(agreed(f, 0));
    assert_int_equal(next(f), MEMBER_NOTHING);
    assert_false(member_has_todo(f->m));
}

static void a_join_is_sent_again_after_the_plan(void **state)
{
    struct fixture *f = *state;

    learn(f, "ab");
    (void)submit(f, 0, "a");
    (void)submit_group(f, 2, COLL_JOIN, "join", 0);
    assert_tells(f, "2: #0 join");
    tell(f, freeze(1, SLOTS_0_1, 2));
    assert_int_equal(next(f), MEMBER_AGREE);
    assert_int_equal(f->act.words[0], 2);
    assert_false(agreed(f, 0));
    assert_tells(f, "3: #0 join");
}

static void a_plan_offers_groups_whole(void **state)
{
    struct fixture *f = *state;

    for (uint32_t i = 0; i < 2; i++) {
        struct down d = whole(i ? "b" : "a", i);

        (void)submit_group(f, i, COLL_ALLREDUCE, i ? "b" : "a", 2);
        while (member_take_up(f->m, &f->up))
            ;
        d.req = f->reqs[i];
        tell(f, d);
        assert_runs(f, &f->ops[i]);
    }
    tell(f, freeze(1, SLOTS_0_1, 2));
    (void)submit_group(f, 1, COLL_ALLREDUCE, "b", 2);
    assert_int_equal(next(f), MEMBER_NOTHING);
    assert_false(member_has_offer(f->m));
    (void)submit_group(f, 0, COLL_ALLREDUCE, "a", 2);
    assert_int_equal(next(f), MEMBER_AGREE);
    assert_int_equal(f->act.words[0], 1 | 2 | 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_plan_needs_agreements_only),
        TEST(an_offer_may_be_put_off),
        TEST(leaving_submits_again_what_the_plan_had),
        TEST(all_leave_when_one_must),
        TEST(a_join_is_sent_again_after_the_plan),
        TEST(a_plan_offers_groups_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
