/* SPDX-License-Identifier: Apache-2.0 */
/* Negotiation: what rank 0 refuses, fuses and reports. When tensors are ready, and that
 * ranks disagree, is core_sim_test's. */
#include "tests/unit/core_negotiate.h"

NEGOTIATE_TEST(a_rank_that_submits_twice_breaks_the_world, 2, 1 << 20)
{
    struct tensor_request a = request_make(COLL_ALLREDUCE, "a");
    struct err err = ERR_INIT;

    rank_add(n, 1, &a);
    assert_int_equal(negotiate_add(n, 1, &a, 1, &err), -EPROTO);
    assert_string_equal(err.text, "rank 1 submitted tensor \"a\" twice");
    assert_int_equal(negotiate_add(n, 2, &a, 1, &err), -EPROTO);
}

/* Which requests cannot be is core_mismatch_test's. */
NEGOTIATE_TEST(impossible_requests_fail_on_all, 2, 1 << 20)
{
    struct tensor_request q = request_make(COLL_ALLGATHER, "x");

    q.ndim = 0;
    all_add(n, 2, &q);
    assert_answers(
        n, "fails: rank 1 tried to ALLGATHER a rank-zero tensor: tensor \"x\"; ");
}

/* 24 bytes each. */
NEGOTIATE_TEST(fused_ones_are_marked, 1, 3 * 24 + 5)
{
    static const char *const names[] = {"a", "b", "c", "d"};

    for (size_t i = 0; i < 4; i++) {
        struct tensor_request q = request_make(COLL_ALLREDUCE, names[i]);

        rank_add(n, 0, &q);
    }
    assert_answers(n, "a and b and c; d; ");
}

NEGOTIATE_TEST(a_late_tensor_is_reported, 2, 1 << 20)
{
    struct tensor_request a = request_make(COLL_ALLREDUCE, "a");

    negotiate_report_late(n);
    assert_answers(n, ""); /* nothing is pending */
    rank_add(n, 0, &a);
    negotiate_report_late(n);
    assert_answers(n, "late a; ");
    assert_answers(n, ""); /* once */
}

/* They count for the answers of their own message. */
NEGOTIATE_TEST(new_settings_are_sent_first, 1, 1 << 20)
{
    const struct tuning one = {.fusion_bytes = 1}, off = {.gather_ns = 5};
    struct tensor_request a = request_make(COLL_ALLREDUCE, "a"),
                          b = request_make(COLL_ALLREDUCE, "b");

    rank_add(n, 0, &a);
    rank_add(n, 0, &b);
    assert_answers(n, "a and b; ");
    negotiate_tune(n, &one);
    negotiate_tune(n, &off); /* replaces the first */
    rank_add(n, 0, &a);
    rank_add(n, 0, &b);
    assert_answers(n, "tune 0 5; a; b; ");
    assert_answers(n, ""); /* once */
}

UNIT_MAIN(NULL, NULL)
