/* SPDX-License-Identifier: Apache-2.0 */
/* Negotiation where not every rank counts alike: groups, ranks that have joined,
 * process sets. */
#include "tests/unit/core_negotiate.h"

static void a_group_is_ready_when_all_of_it_is(void **state)
{
    struct request a = req(COLL_ALLREDUCE, "a"), b = req(COLL_ALLREDUCE, "b");
    struct request c = req(COLL_ALLREDUCE, "c");
    struct answers got = {0};
    struct negotiate *n = table(2, 1 << 20);

    (void)state;
    a.group = b.group = 5;
    a.group_n = b.group_n = 2;
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(negotiate_add(n, rank, &a, 1, NULL), 0);
        assert_int_equal(negotiate_add(n, rank, &c, 1, NULL), 0);
    }
    assert_int_equal(take(n, &got, 2), 1); /* c alone */
    assert_string_equal(next(&got).req.name, "c");
    strbuf_release(&got.b);
    assert_int_equal(negotiate_add(n, 1, &b, 1, NULL), 0);
    assert_false(negotiate_has_news(n));
    assert_int_equal(negotiate_add(n, 0, &b, 1, NULL), 0);
    assert_int_equal(take(n, &got, 2), 2);
    strbuf_release(&got.b);
    assert_int_equal(negotiate_pending(n), 0);
    negotiate_free(n);
}

static void a_group_fails_whole(void **state)
{
    struct request a = req(COLL_ALLREDUCE, "a"), b = req(COLL_ALLREDUCE, "b"), bad;
    struct answers got = {0};
    struct negotiate *n = table(2, 1 << 20);
    struct down d;

    (void)state;
    a.group = b.group = 5;
    a.group_n = b.group_n = 2;
    bad = b;
    bad.dtype = DT_F64;
    assert_int_equal(negotiate_add(n, 0, &a, 1, NULL), 0);
    assert_int_equal(negotiate_add(n, 1, &a, 1, NULL), 0);
    assert_int_equal(negotiate_add(n, 0, &b, 1, NULL), 0);
    assert_int_equal(negotiate_add(n, 1, &bad, 1, NULL), 0);
    assert_int_equal(take(n, &got, 2), 2);
    d = next(&got);
    assert_int_equal(d.kind, DOWN_FAIL);
    assert_string_equal(d.text,
                        "its group failed with tensor \"b\": Mismatched data types: "
                        "tensor \"b\": rank 0 has float32, rank 1 has float64");
    assert_int_equal(next(&got).kind, DOWN_FAIL);
    strbuf_release(&got.b);
    negotiate_free(n);
}

/* Rank 0 has a group of two, rank 1 of three: no tensor of it may wait for a third. */
static void nobody_waits_for_a_group_that_ranks_disagree_about(void **state)
{
    static const char *const names[] = {"a", "b", "c"};
    struct answers got = {0};
    struct negotiate *n = table(2, 1 << 20);
    struct request q;

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        for (uint32_t rank = 2; rank-- > 0;) {
            q = req(COLL_ALLREDUCE, names[i]);
            q.group = rank == 0 && i == 2 ? 0 : 5;
            q.group_n = q.group == 0 ? 0 : rank == 0 ? 2 : 3;
            assert_int_equal(negotiate_add(n, rank, &q, 1, NULL), 0);
        }
    }
    assert_int_equal(take(n, &got, 2), 3);
    assert_string_equal(next(&got).text,
                        "Mismatched group sizes: tensor \"a\": rank 0 has 2, rank 1 "
                        "has 3");
    assert_int_equal(next(&got).kind, DOWN_FAIL);
    assert_string_equal(next(&got).text,
                        "Mismatched groups: tensor \"c\": rank 0 has no group, rank 1 "
                        "has a group");
    strbuf_release(&got.b);
    assert_int_equal(negotiate_pending(n), 0);
    negotiate_free(n);
}

static void who_has_joined_is_not_waited_for(void **state)
{
    struct request a = req(COLL_ALLREDUCE, "a"), g = req(COLL_ALLGATHER, "g");
    struct request j = req(COLL_JOIN, "join");
    struct answers got = {0};
    struct negotiate *n = table(3, 1 << 20);
    struct down d;

    (void)state;
    assert_int_equal(negotiate_add(n, 0, &a, 1, NULL), 0);
    assert_int_equal(negotiate_add(n, 1, &a, 1, NULL), 0);
    assert_int_equal(negotiate_add(n, 2, &j, 1, NULL), 0); /* completes a */
    assert_int_equal(take(n, &got, 3), 1);
    d = next(&got);
    assert_int_equal(d.kind, DOWN_RUN);
    assert_true(d.has_req); /* rank 2 has no other way to know its size */
    strbuf_release(&got.b);
    assert_int_equal(negotiate_add(n, 2, &a, 1, NULL), -EPROTO);
    assert_int_equal(negotiate_add(n, 0, &g, 1, NULL), 0);
    assert_int_equal(negotiate_add(n, 1, &g, 1, NULL), 0);
    assert_int_equal(take(n, &got, 3), 1);
    assert_string_equal(
        next(&got).text,
        "Allgather is not supported with Join at this time: tensor \"g\"");
    strbuf_release(&got.b);
    assert_int_equal(negotiate_add(n, 1, &j, 1, NULL), 0);
    assert_false(negotiate_has_news(n));
    assert_int_equal(negotiate_add(n, 0, &j, 1, NULL), 0);
    assert_int_equal(take(n, &got, 3), 1);
    d = next(&got);
    assert_int_equal(d.kind, DOWN_JOINED);
    assert_int_equal(d.req.root, 0); /* the last */
    strbuf_release(&got.b);
    assert_int_equal(negotiate_add(n, 2, &a, 1, NULL), 0); /* all are back */
    negotiate_free(n);
}

static void a_process_set_waits_for_its_own_ranks_only(void **state)
{
    static const uint8_t pair[] = {0, 0, 0, 0, 2, 0, 0, 0};
    struct request add = set_of(pair, 2), a = req(COLL_ALLGATHER, "a");
    struct request gone = req(COLL_SET_REMOVE, "set");
    struct answers got = {0};
    struct negotiate *n = table(3, 1 << 20);
    struct err err = ERR_INIT;
    struct down d;

    (void)state;
    for (uint32_t rank = 0; rank < 3; rank++)
        assert_int_equal(negotiate_add(n, rank, &add, 1, NULL), 0);
    assert_int_equal(take(n, &got, 3), 1);
    d = next(&got);
    assert_int_equal(d.kind, DOWN_RUN);
    assert_int_equal(d.req.process_set, 1);
    strbuf_release(&got.b);
    a.process_set = 1;
    assert_int_equal(negotiate_add(n, 1, &a, 1, &err), -EPROTO);
    assert_string_equal(
        err.text, "rank 1 submitted tensor \"a\" in process set 1, which it is not in");
    negotiate_free(n);

    n = table(3, 1 << 20);
    for (uint32_t rank = 0; rank < 3; rank++)
        assert_int_equal(negotiate_add(n, rank, &add, 1, NULL), 0);
    assert_int_equal(take(n, &got, 3), 1);
    strbuf_release(&got.b);
    a.shape[0] = 4;
    assert_int_equal(negotiate_add(n, 0, &a, 1, NULL), 0);
    a.shape[0] = 9;
    assert_int_equal(negotiate_add(n, 2, &a, 1, NULL), 0);
    assert_int_equal(take(n, &got, 3), 1);
    d = next(&got);
    assert_int_equal(d.n_counts, 2);
    assert_int_equal(d.counts[0], 4);
    assert_int_equal(d.counts[1], 9);
    strbuf_release(&got.b);
    for (uint32_t rank = 0; rank < 3; rank++) /* the same ranks again */
        assert_int_equal(negotiate_add(n, rank, &add, 1, NULL), 0);
    assert_int_equal(take(n, &got, 3), 1);
    assert_string_equal(next(&got).text,
                        "a process set with the same ranks exists already: 1");
    strbuf_release(&got.b);
    gone.root = 1;
    for (uint32_t rank = 0; rank < 3; rank++)
        assert_int_equal(negotiate_add(n, rank, &gone, 1, NULL), 0);
    assert_int_equal(take(n, &got, 3), 1);
    assert_int_equal(next(&got).kind, DOWN_RUN);
    strbuf_release(&got.b);
    assert_int_equal(negotiate_add(n, 0, &a, 1, NULL), 0);
    assert_int_equal(take(n, &got, 3), 1);
    assert_string_equal(next(&got).text, "tensor \"a\": process set 1 does not exist");
    strbuf_release(&got.b);
    negotiate_free(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_group_is_ready_when_all_of_it_is),
        cmocka_unit_test(a_group_fails_whole),
        cmocka_unit_test(nobody_waits_for_a_group_that_ranks_disagree_about),
        cmocka_unit_test(who_has_joined_is_not_waited_for),
        cmocka_unit_test(a_process_set_waits_for_its_own_ranks_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
