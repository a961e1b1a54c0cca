/* SPDX-License-Identifier: Apache-2.0 */
/* One rank's part of the negotiation against answers written by hand: what it sends to
 * rank 0 and when, and what it refuses. What it hands out is core_sim_test's. */
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

MEMBER_TEST(a_joined_rank_submits_nothing)
{
    struct member_op more;

    (void)member_submit_group(f, 0, COLL_JOIN, "join", 0);
    f->reqs[1] = request_make(COLL_ALLREDUCE, "a");
    more = (struct member_op){.req = &f->reqs[1]};
    assert_int_equal(member_submit(f->m, &more), -EBUSY);
    assert_sends(f, "0: join");
}

MEMBER_TEST(what_rank_0_cannot_mean_breaks_the_world)
{
    const struct {
        struct down d;
        const char *want;
    } rows[] = {
        {down_whole("x", 0),
         "rank 0 answers tensor \"x\", which this rank does not have"},
        {{.kind = DOWN_JOINED,
          .has_req = true,
          .slot = SLOT_NONE,
          .req = request_make(COLL_JOIN, "join")},
         "rank 0 reports that all ranks have joined, but this rank has not"},
        {down_freeze(1, SLOTS_0_1, 2),
         "rank 0 plans slot 0, which this rank does not have"},
    };

    down_begin(f);
    down_put(f, down_by_slot(5));
    assert_int_equal(down_receive(f), -EPROTO);
    assert_string_equal(f->err.text, "rank 0 answers slot 5, which it never assigned");
    strbuf_clear(&f->down);
    message_begin_up(&f->down, 0);
    assert_int_equal(down_receive(f), -EBADMSG);
    assert_string_equal(f->err.text, "control message: requests instead of answers");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        down_send(f, rows[i].d);
        assert_int_equal(member_next(f->m, true, &f->act, &f->err), -EPROTO);
        assert_string_equal(f->err.text, rows[i].want);
    }
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
