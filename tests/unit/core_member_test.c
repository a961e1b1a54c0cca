/* SPDX-License-Identifier: Apache-2.0 */
/* One rank's part of the negotiation against answers written by hand: what it tells
 * rank 0 and when, what it hands out, and what it does not believe. */
#include "runtime/core/pair.h"
#include "tests/unit/member_fixture.h"

MEMBER_TEST(what_was_answered_is_sent_as_a_bit)
{
    struct member_op *b;

    assert_sends(f, "");
    (void)member_submit_op(f, 0, "a");
    b = member_submit_op(f, 1, "b");
    assert_sends(f, "0: a b");
    assert_sends(f, ""); /* once */
    down_begin(f);
    down_put(f, down_whole("b", 70));
    down_put(f, down_whole("a", 3));
    assert_int_equal(down_receive(f), 0);
    assert_true(member_has_todo(f->m));
    assert_runs(f, b); /* in the order of the answers */
    assert_runs(f, &f->ops[0]);
    assert_int_equal(member_next_kind(f), MEMBER_NOTHING);
    assert_false(member_has_todo(f->m));
    (void)member_submit_op(f, 0, "a");
    (void)member_submit_op(f, 1, "c");
    (void)member_submit_op(f, 2, "b");
    assert_sends(f, "1: #3 c #70");
    down_send(f, down_by_slot(70));
    assert_runs(f, &f->ops[2]);
    assert_int_equal(member_counts(f->m).n_hits, 2);
    assert_int_equal(member_counts(f->m).n_requests, 3);
    assert_int_equal(member_counts(f->m).n_up, 2);
    assert_int_equal(member_counts(f->m).n_down, 2);
}

MEMBER_TEST(another_shape_is_sent_whole)
{
    member_learn(f, "a");
    f->reqs[0] = request_make(COLL_ALLREDUCE, "a");
    f->reqs[0].shape[0] = 5;
    f->ops[0] = (struct member_op){.req = &f->reqs[0]};
    assert_int_equal(member_submit(f->m, &f->ops[0]), 0);
    assert_sends(f, "1: a");
}

/* Slot 0 goes to b before the answer to a, which tells the slot only, has had its turn.
 */
MEMBER_TEST(an_answer_by_slot_means_what_it_meant_on_arrival)
{
    struct member_op *a, *b;
    struct down d = down_whole("x", 0);

    member_learn(f, "a");
    a = member_submit_op(f, 0, "a");
    b = member_submit_op(f, 1, "b");
    down_begin(f);
    down_put(f, down_by_slot(0));
    down_put(f, down_whole("b", 0));
    assert_int_equal(down_receive(f), 0);
    assert_runs(f, a);
    assert_runs(f, b);
    (void)member_submit_op(f, 0, "a");
    (void)member_submit_op(f, 1, "b");
    while (member_take_up(f->m, &f->up))
        ;
    down_send(f, down_by_slot(0));
    down_begin(f);
    d.req.process_set = 9; /* of others */
    down_put(f, d);
    assert_int_equal(down_receive(f), 0);
    assert_runs(f, &f->ops[1]);
    assert_int_equal(member_next_kind(f), MEMBER_NOTHING);
}

MEMBER_TEST(an_act_stays_while_messages_arrive)
{
    uint64_t counts[RANKS] = {4, 1, 2}, others[RANKS] = {9, 9, 9};
    struct down d = {.kind = DOWN_RUN, .has_req = true, .n_counts = RANKS};

    for (int round = 0; round < 2; round++) {
        struct member_op *op = member_submit_group(f, 0, COLL_ALLGATHER, "g", 0);

        (void)member_submit_group(f, 1, COLL_ALLGATHER, "h", 0);
        while (member_take_up(f->m, &f->up))
            ;
        d.counts = counts;
        d.req = f->reqs[0];
        d.slot = 0;
        down_send(f, round == 0 ? d : down_by_slot(0));
        assert_runs(f, op);
        d.counts = others;
        d.req = f->reqs[1];
        down_send(f, d); /* takes the slot, too */
        assert_int_equal(f->act.n_counts, RANKS);
        assert_memory_equal(f->act.counts, counts, sizeof(counts));
        assert_string_equal(f->act.items[0].req->name, "g");
        assert_runs(f, &f->ops[1]);
        assert_memory_equal(f->act.counts, others, sizeof(others));
        if (round == 0) {
            op = member_submit_group(f, 0, COLL_ALLGATHER, "g", 0);
            d.counts = counts;
            d.req = f->reqs[0];
            down_send(f, d);
            assert_runs(f, op);
        }
    }
}

MEMBER_TEST(a_failure_ends_its_operation_only)
{
    struct down d = down_whole("a", SLOT_NONE);
    struct member_op *a = member_submit_op(f, 0, "a"), *b = member_submit_op(f, 1, "b");

    d.kind = DOWN_FAIL;
    (void)snprintf(d.text, sizeof(d.text), "no");
    down_begin(f);
    down_put(f, d);
    (void)snprintf(d.req.name, sizeof(d.req.name), "of others");
    down_put(f, d);
    down_put(f, down_whole("b", 0));
    assert_int_equal(down_receive(f), 0);
    assert_int_equal(member_next_kind(f), MEMBER_FAIL);
    assert_ptr_equal(f->act.items[0].op, a);
    assert_string_equal(f->act.text, "no");
    assert_runs(f, b);
}

MEMBER_TEST(a_batch_is_handed_out_whole)
{
    struct down d;

    (void)member_submit_op(f, 0, "a");
    (void)member_submit_op(f, 1, "b");
    down_begin(f);
    d = down_whole("b", 0);
    d.fuse_next = true;
    down_put(f, d);
    down_put(f, down_whole("a", 1));
    assert_int_equal(down_receive(f), 0);
    assert_runs(f, &f->ops[1]);
    assert_int_equal(f->act.n_items, 2);
    assert_ptr_equal(f->act.items[1].op, &f->ops[0]);
}

MEMBER_TEST(process_sets_of_others_are_passed_over)
{
    struct down d = down_whole("x", 0);

    assert_int_equal(member_set_added(f->m, 1, false), 0);
    assert_int_equal(member_set_added(f->m, 2, true), 0);
    d.req.process_set = 1;
    down_send(f, d);
    down_send(f, down_by_slot(0));
    assert_int_equal(member_next_kind(f), MEMBER_NOTHING);
    d.req.process_set = 2;
    down_send(f, d);
    assert_int_equal(member_next(f->m, true, CALL_NONE, &f->act, &f->err), -EPROTO);
    assert_string_equal(f->err.text,
                        "rank 0 answers tensor \"x\", which this rank does not have");
}

MEMBER_TEST(a_set_of_others_is_met_for)
{
    static const uint8_t ranks[] = {6, 0, 0, 0, 7, 0, 0, 0};
    struct down d = down_whole("s", SLOT_NONE);

    d.req = (struct tensor_request){.coll = COLL_SET_ADD,
                                    .root = SET_BY_MEMBERS,
                                    .process_set = 3,
                                    .n_set = 2,
                                    .set = ranks,
                                    .name = "s"};
    down_send(f, d);
    assert_int_equal(member_next_kind(f), MEMBER_SET);
    assert_int_equal(f->act.set_id, 3);
    assert_int_equal(request_set_rank(f->act.items[0].req, 1), 7);
    assert_int_equal(member_next_kind(f), MEMBER_NOTHING);
}

MEMBER_TEST(a_set_of_others_is_not_waited_for_here)
{
    static const uint8_t ranks[] = {0, 0, 0, 0, 7, 0, 0, 0};
    struct down d = down_whole("s", SLOT_NONE);

    d.kind = DOWN_LATE;
    d.req = (struct tensor_request){.coll = COLL_SET_ADD,
                                    .root = SET_BY_MEMBERS,
                                    .n_set = 1,
                                    .set = ranks + 4,
                                    .name = "s"};
    down_send(f, d);
    assert_null(member_is_late(f->m));
    d.req.set = ranks;
    d.req.n_set = 2;
    down_send(f, d);
    assert_string_equal(member_is_late(f->m), "s");
    d.req.set = ranks + 4;
    d.req.n_set = 1;
    d.req.root = SET_BY_ALL;
    down_send(f, d);
    assert_string_equal(member_is_late(f->m), "s");
}

MEMBER_TEST(a_joined_rank_contributes_zeros)
{
    struct member_op *join = member_submit_group(f, 0, COLL_JOIN, "join", 0), more;
    struct down d = down_whole("a", SLOT_NONE);

    f->reqs[1] = request_make(COLL_ALLREDUCE, "a");
    more = (struct member_op){.req = &f->reqs[1]};
    assert_int_equal(member_submit(f->m, &more), -EBUSY);
    assert_sends(f, "0: join");
    d.fuse_next = true;
    down_begin(f);
    down_put(f, d);
    down_put(f, down_whole("b", SLOT_NONE));
    assert_int_equal(down_receive(f), 0);
    assert_int_equal(member_next_kind(f), MEMBER_RUN);
    assert_int_equal(f->act.n_items, 2);
    assert_null(f->act.items[0].op);
    assert_string_equal(f->act.items[0].req->name, "a");
    assert_string_equal(f->act.items[1].req->name, "b");
    d = (struct down){.kind = DOWN_JOINED, .has_req = true, .slot = SLOT_NONE};
    d.req = f->reqs[0];
    d.req.root = 2;
    down_send(f, d);
    assert_int_equal(member_next_kind(f), MEMBER_JOIN);
    assert_ptr_equal(f->act.items[0].op, join);
    assert_int_equal(f->act.last_joined, 2);
    assert_int_equal(member_submit(f->m, &more), 0);
    down_send(f, d);
    assert_int_equal(member_next(f->m, true, CALL_NONE, &f->act, &f->err), -EPROTO);
    assert_string_equal(
        f->err.text,
        "rank 0 reports that all ranks have joined, but this rank has not");
}

MEMBER_TEST(what_rank_0_cannot_mean_breaks_the_world)
{
    down_begin(f);
    down_put(f, down_by_slot(5));
    assert_int_equal(down_receive(f), -EPROTO);
    assert_string_equal(f->err.text, "rank 0 answers slot 5, which it never assigned");
    strbuf_clear(&f->down);
    message_begin_up(&f->down, 0);
    assert_int_equal(down_receive(f), -EBADMSG);
    assert_string_equal(f->err.text, "control message: requests instead of answers");
    down_send(f, down_freeze(1, SLOTS_0_1, 2));
    assert_int_equal(member_next(f->m, true, CALL_NONE, &f->act, &f->err), -EPROTO);
    assert_string_equal(f->err.text,
                        "rank 0 plans slot 0, which this rank does not have");
}

MEMBER_TEST(much_goes_in_several_messages)
{
    enum { N = 1200 };
    struct tensor_request *q = mem_calloc(N, sizeof(*q));
    struct member_op *ops = mem_calloc(N, sizeof(*ops));
    struct message_reader in;
    struct up u;
    size_t n = 0, n_messages = 0;

    assert_non_null(q);
    assert_non_null(ops);
    for (size_t i = 0; i < N; i++) {
        q[i] = request_make(COLL_ALLREDUCE, "");
        memset(q[i].name, 'n', 400);
        (void)snprintf(q[i].name + 400, 32, "%zu", i);
        ops[i].req = &q[i];
        assert_int_equal(member_submit(f->m, &ops[i]), 0);
    }
    for (; member_take_up(f->m, &f->up); n_messages++) {
        assert_int_equal(strbuf_status(&f->up), 0);
        assert_int_equal(message_open(&in, f->up.p, f->up.n, NULL), 0);
        for (; message_next_up(&in, &u, NULL) > 0; n++)
            assert_string_equal(u.req.name, q[n].name);
    }
    assert_int_equal(n, N);
    assert_true(n_messages > 1);
    member_free(f->m);
    f->m = NULL;
    mem_free(q);
    mem_free(ops);
}

/* --- out of memory --- */

UNIT_TEST(lack_of_memory_is_returned)
{
    bool was_hit = true;

    for (long n = 0; was_hit; n++) {
        struct fixture f = {.m = NULL};
        int r;

        strbuf_init(&f.up, MESSAGE_MAX_BYTES);
        strbuf_init(&f.down, MESSAGE_MAX_BYTES);
        f.reqs[0] = request_make(COLL_ALLREDUCE, "a");
        f.ops[0].req = &f.reqs[0];
        down_begin(&f);
        down_put(&f, down_whole("a", 0));
        down_put(&f, down_freeze(1, SLOTS_0_1, 1));
        mem_fail_after(n);
        r = member_new(0, RANKS, &f.m);
        r = r < 0 ? r : member_submit(f.m, &f.ops[0]);
        r = r < 0 ? r : member_take_up(f.m, &f.up) ? strbuf_status(&f.up) : -EIO;
        r = r < 0 ? r : member_receive(f.m, f.down.p, f.down.n, &f.err);
        r = r < 0 ? r : member_next(f.m, true, CALL_NONE, &f.act, &f.err);
        r = r < 0 ? r : member_next(f.m, true, CALL_NONE, &f.act, &f.err);
        r = r < 0 ? r : member_set_added(f.m, 1, true);
        was_hit = mem_fail_fired();
        mem_fail_after(-1);
        assert_int_equal(r, was_hit ? -ENOMEM : 0);
        assert_true(r < 0 || member_is_in_plan(f.m));
        member_free(f.m);
        strbuf_release(&f.up);
        strbuf_release(&f.down);
    }
}

/* This is rank 0. */
MEMBER_TEST(a_pair_is_met_by_all_and_used_by_two)
{
    struct down others = down_whole("x (1 -> 2)", 0),
                ours = down_whole("x (1 -> 0)", 1);
    struct member_op *op;

    others.req.coll = ours.req.coll = COLL_SENDRECV;
    others.req.process_set = pair_of(1, 2);
    ours.req.process_set = pair_of(0, 1);
    others.req.root = ours.req.root = 1;
    f->reqs[0] = ours.req;
    op = &f->ops[0];
    *op = (struct member_op){.req = &f->reqs[0]};
    assert_int_equal(member_submit(f->m, op), 0);
    while (member_take_up(f->m, &f->up))
        ;
    down_begin(f);
    down_put(f, (struct down){.kind = DOWN_PAIR, .pair = pair_of(1, 2)});
    down_put(f, others);
    down_put(f, down_by_slot(0));
    down_put(f, (struct down){.kind = DOWN_PAIR, .pair = pair_of(0, 1)});
    down_put(f, ours);
    assert_int_equal(down_receive(f), 0);
    assert_int_equal(member_next_kind(f), MEMBER_PAIR);
    assert_int_equal(f->act.set_id, pair_of(1, 2));
    assert_int_equal(member_next_kind(f), MEMBER_PAIR);
    assert_int_equal(f->act.set_id, pair_of(0, 1));
    assert_runs(f, op);
    assert_int_equal(member_next_kind(f), MEMBER_NOTHING);
}

MEMBER_TEST(the_late_operation_of_a_pair_is_reported)
{
    struct down d = down_whole("x (1 -> 2)", SLOT_NONE);

    d.kind = DOWN_LATE;
    d.req.coll = COLL_SENDRECV;
    d.req.process_set = pair_of(1, 2);
    d.req.root = 1;
    down_send(f, d);
    assert_null(member_is_late(f->m)); /* two others */
    d.req.process_set = pair_of(1, 0);
    (void)snprintf(d.req.name, sizeof(d.req.name), "x (1 -> 0)");
    down_send(f, d);
    assert_string_equal(member_is_late(f->m), "x (1 -> 0)");
}

UNIT_MAIN(NULL, NULL)
