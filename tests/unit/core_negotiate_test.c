/* SPDX-License-Identifier: Apache-2.0 */
/* Negotiation: what is ready when, and what people read when ranks disagree. */
#include "tests/unit/core_negotiate.h"

UNIT_TEST(ready_when_all_ranks_have_it)
{
    struct tensor_request a = request_make(COLL_ALLREDUCE, "a"),
                          b = request_make(COLL_ALLREDUCE, "b");
    struct negotiate *n = negotiate_make(3, 0);

    rank_add(n, 0, &a);
    all_add(n, 3, &b);
    assert_true(negotiate_has_news(n));
    assert_int_equal(negotiate_pending(n), 1);
    rank_add(n, 2, &a);
    rank_add(n, 1, &a);
    assert_answers(n, "b; a; ");
    assert_answers(n, ""); /* exactly once */
    negotiate_free(n);
}

UNIT_TEST(equal_names_may_come_again_after_the_response)
{
    struct tensor_request a = request_make(COLL_BARRIER, "a");
    struct negotiate *n = negotiate_make(2, 1 << 20);

    for (int round = 0; round < 3; round++) {
        all_add(n, 2, &a);
        assert_answers(n, "a; ");
    }
    negotiate_free(n);
}

UNIT_TEST(a_rank_that_submits_twice_breaks_the_world)
{
    struct tensor_request a = request_make(COLL_ALLREDUCE, "a");
    struct err err = ERR_INIT;
    struct negotiate *n = negotiate_make(2, 1 << 20);

    rank_add(n, 1, &a);
    assert_int_equal(negotiate_add(n, 1, &a, 1, &err), -EPROTO);
    assert_string_equal(err.text, "rank 1 submitted tensor \"a\" twice");
    assert_int_equal(negotiate_add(n, 2, &a, 1, &err), -EPROTO);
    negotiate_free(n);
}

UNIT_TEST(an_allgather_answer_has_the_rows_of_every_rank)
{
    struct tensor_request a = request_make(COLL_ALLGATHER, "a"), b = a;
    struct negotiate *n = negotiate_make(2, 1 << 20);

    b.shape[0] = 7;
    rank_add(n, 1, &b);
    rank_add(n, 0, &a);
    assert_answers(n, "a[2 7]; ");
    negotiate_free(n);
}

/* Which differences there are is core_mismatch_test's. Here: the odd rank is named, in
 * any order of arrival. */
UNIT_TEST(disagreements_name_tensor_ranks_and_values)
{
    static const uint32_t orders[][3] = {{0, 1, 2}, {2, 0, 1}, {0, 2, 1}};

    for (size_t o = 0; o < ARRAY_LEN(orders); o++) {
        struct negotiate *n = negotiate_make(3, 1 << 20);

        for (size_t k = 0; k < 3; k++) {
            struct tensor_request q = request_make(COLL_BROADCAST, "grad/0");

            q.root = orders[o][k] == 2;
            rank_add(n, orders[o][k], &q);
        }
        assert_answers(n, "fails: Mismatched BROADCAST root ranks: tensor "
                          "\"grad/0\": rank 0 has root rank 0, rank 2 has root rank "
                          "1; ");
        negotiate_free(n);
    }
}

/* Which requests cannot be is core_mismatch_test's. */
UNIT_TEST(impossible_requests_fail_on_all)
{
    struct tensor_request q = request_make(COLL_ALLGATHER, "x");
    struct negotiate *n = negotiate_make(2, 1 << 20);

    q.ndim = 0;
    all_add(n, 2, &q);
    assert_answers(
        n, "fails: rank 1 tried to ALLGATHER a rank-zero tensor: tensor \"x\"; ");
    negotiate_free(n);
}

UNIT_TEST(a_failed_tensor_does_not_stop_the_next)
{
    struct tensor_request a = request_make(COLL_ALLREDUCE, "a"),
                          b = request_make(COLL_ALLREDUCE, "b"), bad = a;
    struct negotiate *n = negotiate_make(2, 1 << 20);

    bad.dtype = DT_I32;
    rank_add(n, 0, &a);
    rank_add(n, 1, &bad);
    all_add(n, 2, &b);
    assert_answers(n, "fails: Mismatched data types: tensor \"a\": rank 0 has float32, "
                      "rank 1 has int32; b; ");
    negotiate_free(n);
}

UNIT_TEST(fused_ones_are_marked)
{
    static const char *const names[] = {"a", "b", "c", "d"};
    struct negotiate *n = negotiate_make(1, 3 * 24 + 5); /* 24 bytes each */

    for (size_t i = 0; i < 4; i++) {
        struct tensor_request q = request_make(COLL_ALLREDUCE, names[i]);

        rank_add(n, 0, &q);
    }
    assert_answers(n, "a and b and c; d; ");
    negotiate_free(n);
}

UNIT_TEST(a_late_tensor_is_reported)
{
    struct tensor_request a = request_make(COLL_ALLREDUCE, "a");
    struct negotiate *n = negotiate_make(2, 1 << 20);

    negotiate_report_late(n);
    assert_answers(n, ""); /* nothing is pending */
    rank_add(n, 0, &a);
    negotiate_report_late(n);
    assert_answers(n, "late a; ");
    assert_answers(n, ""); /* once */
    negotiate_free(n);
}

/* They count for the answers of their own message. */
UNIT_TEST(new_settings_are_sent_first)
{
    const struct tuning one = {.fusion_bytes = 1}, off = {.gather_ns = 5};
    struct tensor_request a = request_make(COLL_ALLREDUCE, "a"),
                          b = request_make(COLL_ALLREDUCE, "b");
    struct negotiate *n = negotiate_make(1, 1 << 20);

    rank_add(n, 0, &a);
    rank_add(n, 0, &b);
    assert_answers(n, "a and b; ");
    negotiate_tune(n, &one);
    negotiate_tune(n, &off); /* replaces the first */
    rank_add(n, 0, &a);
    rank_add(n, 0, &b);
    assert_answers(n, "tune 0 5; a; b; ");
    assert_answers(n, ""); /* once */
    negotiate_free(n);
}

UNIT_TEST(survives_failing_allocations)
{
    struct negotiate_config cfg = {
        .n_ranks = 2, .cache_capacity = 4, .may_freeze = true};

    for (long i = 0;; i++) {
        static const uint8_t one[] = {1, 0, 0, 0};
        struct tensor_request a = request_make(COLL_ALLGATHER, "a"), bad = a,
                              add = set_of(one, 1);
        struct tensor_request g = request_make(COLL_ALLREDUCE, "g");
        struct negotiate *n = NULL;
        struct strbuf out;
        int rc;

        bad.dtype = DT_I32;
        g.group = 3;
        g.group_n = 1;
        strbuf_init(&out, MESSAGE_MAX_BYTES);
        mem_fail_after(i);
        rc = negotiate_new(&cfg, &n);
        rc = rc < 0 ? rc : negotiate_add(n, 0, &a, 1, NULL);
        rc = rc < 0 ? rc : negotiate_add(n, 1, &bad, 1, NULL);
        rc = rc < 0 ? rc : negotiate_add(n, 0, &add, 1, NULL);
        rc = rc < 0 ? rc : negotiate_add(n, 1, &add, 1, NULL);
        rc = rc < 0 ? rc : negotiate_add(n, 0, &g, 1, NULL);
        rc = rc < 0 ? rc : negotiate_add(n, 1, &g, 1, NULL);
        rc = rc < 0 ? rc : negotiate_write(n, &out);
        negotiate_free(n);
        strbuf_release(&out);
        if (!mem_fail_fired()) {
            mem_fail_after(-1);
            assert_int_equal(rc, 0);
            break;
        }
        /* the cache goes without */
        assert_true(rc == -ENOMEM || rc == 0);
    }
}

UNIT_MAIN(NULL, NULL)
