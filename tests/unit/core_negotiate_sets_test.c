/* SPDX-License-Identifier: Apache-2.0 */
/* Negotiation where not every rank counts alike: groups, ranks that have joined,
 * process sets, pairs. */
#include "tests/unit/core_negotiate.h"

NEGOTIATE_TEST(a_group_fails_whole, 2, 1 << 20)
{
    struct tensor_request a = request_make(COLL_ALLREDUCE, "a"),
                          b = request_make(COLL_ALLREDUCE, "b"), bad;

    a.group = b.group = 5;
    a.group_n = b.group_n = 2;
    bad = b;
    bad.dtype = DT_F64;
    all_add(n, 2, &a);
    rank_add(n, 0, &b);
    rank_add(n, 1, &bad);
    assert_answers(n, "fails: its group failed with tensor \"b\": Mismatched data "
                      "types: tensor \"b\": rank 0 has float32, rank 1 has float64; "
                      "fails: Mismatched data types: tensor \"b\": rank 0 has "
                      "float32, rank 1 has float64; ");
}

/* Rank 0 has a group of two, rank 1 of three: no tensor of it may wait for a third. */
NEGOTIATE_TEST(nobody_waits_for_a_group_that_ranks_disagree_about, 2, 1 << 20)
{
    static const char *const names[] = {"a", "b", "c"};
    struct tensor_request q;

    for (uint32_t i = 0; i < 3; i++) {
        for (uint32_t rank = 2; rank-- > 0;) {
            q = request_make(COLL_ALLREDUCE, names[i]);
            q.group = rank == 0 && i == 2 ? 0 : 5;
            q.group_n = q.group == 0 ? 0 : rank == 0 ? 2 : 3;
            rank_add(n, rank, &q);
        }
    }
    assert_answers(n, "fails: Mismatched group sizes: tensor \"a\": rank 0 has 2, "
                      "rank 1 has 3; "
                      "fails: Mismatched group sizes: tensor \"b\": rank 0 has 2, "
                      "rank 1 has 3; "
                      "fails: Mismatched groups: tensor \"c\": rank 0 has no group, "
                      "rank 1 has a group; ");
    assert_int_equal(negotiate_pending(n), 0);
}

NEGOTIATE_TEST(a_joined_rank_submits_nothing_until_all_are_back, 2, 1 << 20)
{
    struct tensor_request a = request_make(COLL_ALLREDUCE, "a"),
                          j = request_make(COLL_JOIN, "join");

    rank_add(n, 1, &j);
    assert_int_equal(negotiate_add(n, 1, &a, 1, NULL), -EPROTO);
    rank_add(n, 0, &j);
    assert_answers(n, "joined, 0 last; ");
    rank_add(n, 1, &a);
}

static const uint8_t RANKS_0_AND_2[] = {0, 0, 0, 0, 2, 0, 0, 0};

NEGOTIATE_TEST(a_process_set_waits_for_its_own_ranks_only, 3, 1 << 20)
{
    struct tensor_request add = set_of(RANKS_0_AND_2, 2),
                          a = request_make(COLL_ALLGATHER, "a"),
                          gone = request_make(COLL_SET_REMOVE, "set");

    all_add(n, 3, &add);
    assert_answers(n, "set = 1; ");
    a.process_set = 1;
    a.shape[0] = 4;
    rank_add(n, 0, &a);
    a.shape[0] = 9;
    rank_add(n, 2, &a);
    assert_answers(n, "a[4 9]; ");
    all_add(n, 3, &add); /* the same ranks again */
    assert_answers(n, "fails: a process set with the same ranks exists already: 1; ");
    gone.root = 1;
    all_add(n, 3, &gone);
    assert_answers(n, "set; ");
    rank_add(n, 0, &a);
    assert_answers(n, "fails: tensor \"a\": process set 1 does not exist; ");
}

NEGOTIATE_TEST(a_rank_outside_a_process_set_breaks_the_world, 3, 1 << 20)
{
    struct tensor_request add = set_of(RANKS_0_AND_2, 2),
                          a = request_make(COLL_ALLGATHER, "a");
    struct err err = ERR_INIT;

    all_add(n, 3, &add);
    assert_answers(n, "set = 1; ");
    a.process_set = 1;
    assert_int_equal(negotiate_add(n, 1, &a, 1, &err), -EPROTO);
    assert_string_equal(
        err.text, "rank 1 submitted tensor \"a\" in process set 1, which it is not in");
}

/* --- pairs --- */

static const uint8_t RANKS_0_AND_1[] = {0, 0, 0, 0, 1, 0, 0, 0};

static struct tensor_request
request_transfer(const char *what, uint32_t src, uint32_t dst)
{
    struct tensor_request q = request_make(COLL_SENDRECV, what);

    assert_true(pair_name(what, src, dst, q.name));
    q.process_set = pair_of(src, dst);
    q.root = src;
    return q;
}

static void both_add(struct negotiate *n, const char *what, uint32_t src, uint32_t dst)
{
    struct tensor_request q = request_transfer(what, src, dst);

    rank_add(n, src > dst ? src : dst, &q);
    rank_add(n, src > dst ? dst : src, &q);
}

NEGOTIATE_TEST(a_pair_meets_before_its_first_transfer_only, 4, 0)
{
    struct tensor_request bad = request_transfer("y", 2, 3), worse = bad;

    both_add(n, "x", 1, 0);
    both_add(n, "x", 0, 1);
    assert_answers(n, "pair 0; x (1 -> 0); x (0 -> 1); ");
    both_add(n, "x", 0, 1);
    assert_answers(n, "x (0 -> 1); ");
    worse.dtype = DT_I8; /* no rank waits for a failed tensor */
    rank_add(n, 3, &worse);
    rank_add(n, 2, &bad);
    both_add(n, "x", 3, 1);
    assert_answers(n, "fails: Mismatched data types: tensor \"y (2 -> 3)\": rank 2 has "
                      "float32, rank 3 has int8; pair 4; x (3 -> 1); ");
    both_add(n, "y", 2, 3);
    assert_answers(n, "pair 5; y (2 -> 3); ");
}

NEGOTIATE_TEST(transfers_of_one_direction_travel_together, 3, 1 << 20)
{

    both_add(n, "a", 0, 1);
    both_add(n, "b", 0, 1);
    both_add(n, "c", 1, 0);
    both_add(n, "d", 0, 2);
    assert_answers(n, "pair 0; a (0 -> 1) and b (0 -> 1); c (1 -> 0); pair 1; "
                      "d (0 -> 2); ");
}

/* All ranks pass something on: not one after the other, round the ring. */
NEGOTIATE_TEST(transfers_are_put_into_rounds, 6, 1 << 20)
{
    struct tensor_request q;

    for (uint32_t turn = 0; turn < 2; turn++) {
        q = request_make(COLL_BARRIER, "before");
        for (uint32_t r = 0; r < 6 && turn == 1; r++)
            rank_add(n, r, &q);
        for (uint32_t r = 0; r < 6; r++)
            both_add(n, "a", r, (r + 1) % 6);
        both_add(n, "b", 1, 2);
        both_add(n, "c", 2, 1);
        q = request_make(COLL_BARRIER, "behind");
        all_add(n, 6, &q);
        if (turn == 0)
            assert_answers(n, "pair 0; a (0 -> 1); pair 5; a (2 -> 3); pair 14; "
                              "a (4 -> 5); pair 2; a (1 -> 2) and b (1 -> 2); pair 9; "
                              "a (3 -> 4); pair 10; a (5 -> 0); c (2 -> 1); behind; ");
        else
            assert_answers(n, "before; a (0 -> 1); a (2 -> 3); a (4 -> 5); a (1 -> 2) "
                              "and b (1 -> 2); a (3 -> 4); a (5 -> 0); c (2 -> 1); "
                              "behind; ");
    }
}

/* A failed one and a group's are not moved, and nothing is moved over them. */
NEGOTIATE_TEST(what_is_no_free_transfer_keeps_its_place, 4, 0)
{
    struct tensor_request c = request_transfer("c", 2, 3), bad = c,
                          g = request_transfer("g", 2, 0);

    both_add(n, "a", 0, 1);
    both_add(n, "b", 1, 2);
    bad.ndim = 1;
    rank_add(n, 2, &c);
    rank_add(n, 3, &bad);
    both_add(n, "d", 3, 0);
    g.group = 3;
    g.group_n = 1;
    rank_add(n, 2, &g);
    rank_add(n, 0, &g);
    both_add(n, "e", 1, 2);
    assert_answers(n,
                   "pair 0; a (0 -> 1); pair 2; b (1 -> 2); fails: Mismatched "
                   "SENDRECV tensor shapes: tensor \"c (2 -> 3)\": rank 2 has [2, "
                   "3], rank 3 has [2] (the number of dimensions differs); pair 3; d "
                   "(3 -> 0); pair 1; g (2 -> 0); e (1 -> 2); ");
}

static struct tensor_request request_probe(const char *what, uint32_t dst)
{
    struct tensor_request q = request_make(COLL_PROBE, what);

    assert_true(pair_probe_name(what, dst, q.name));
    return q;
}

NEGOTIATE_TEST(a_probe_names_the_oldest_send_to_its_rank, 4, 1 << 20)
{
    struct tensor_request probe = request_probe("x", 0), other = request_probe("x", 1),
                          from_2 = request_transfer("x", 2, 0),
                          from_3 = request_transfer("x", 3, 0),
                          longer = request_transfer("xx", 3, 0),
                          away = request_transfer("x", 0, 2);

    rank_add(n, 3, &longer); /* another name */
    rank_add(n, 0, &away);   /* its own */
    rank_add(n, 0, &probe);
    rank_add(n, 1, &other);
    assert_false(negotiate_has_news(n));
    rank_add(n, 3, &from_3); /* the send comes second */
    assert_answers(n, "x (any -> 0) is from 3; ");
    rank_add(n, 2, &from_2);
    rank_add(n, 0, &probe); /* the probe comes second, and receives nothing */
    assert_answers(n, "x (any -> 0) is from 3; ");
    rank_add(n, 0, &from_3);
    assert_answers(n, "pair 3; x (3 -> 0); ");
    rank_add(n, 0, &probe);
    assert_answers(n, "x (any -> 0) is from 2; ");
    rank_add(n, 0, &from_2);
    rank_add(n, 0, &probe); /* nothing is left to receive */
    assert_answers(n, "pair 1; x (2 -> 0); ");
}

NEGOTIATE_TEST(a_probe_names_no_send_that_is_received, 2, 0)
{
    struct tensor_request probe = request_probe("x", 0),
                          send = request_transfer("x", 1, 0);

    rank_add(n, 0, &send); /* the receiver */
    rank_add(n, 0, &probe);
    rank_add(n, 1, &send);
    assert_answers(n, "pair 0; x (1 -> 0); ");
    rank_add(n, 1, &send);
    assert_answers(n, "x (any -> 0) is from 1; ");
}

NEGOTIATE_TEST(a_pair_is_of_its_own_two_ranks, 3, 0)
{
    struct tensor_request q = request_transfer("x", 0, 1),
                          far = request_transfer("x", 1, 3);
    struct err err = ERR_INIT;

    assert_int_equal(negotiate_add(n, 2, &q, 1, &err), -EPROTO);
    assert_string_equal(
        err.text,
        "rank 2 submitted transfer \"x (0 -> 1)\", which is not one of its own");
    err = (struct err)ERR_INIT;
    assert_int_equal(negotiate_add(n, 1, &far, 1, &err), -EPROTO);
    assert_string_equal(
        err.text,
        "rank 1 submitted transfer \"x (1 -> 3)\", which is not one of its own");
    assert_int_equal(negotiate_pending(n), 0);
}

NEGOTIATE_TEST(a_pair_is_no_process_set, 3, 0)
{
    struct tensor_request gone = request_make(COLL_SET_REMOVE, "gone"),
                          add = set_of(RANKS_0_AND_1, 2);

    both_add(n, "x", 0, 1);
    all_add(n, 3, &add);
    assert_answers(n, "pair 0; x (0 -> 1); set = 1; ");
    gone.root = pair_of(0, 1);
    all_add(n, 3, &gone);
    assert_answers(n, "fails: process set 2147483648 does not exist; ");
}

NEGOTIATE_TEST(a_transfer_needs_both_but_nobody_else, 3, 0)
{
    struct tensor_request j = request_make(COLL_JOIN, "join");
    struct tensor_request early = request_transfer("early", 2, 1),
                          late = request_transfer("late", 0, 2);

    rank_add(n, 1, &early);
    assert_false(negotiate_has_news(n));
    rank_add(n, 2, &j);
    assert_answers(n, "fails: Send and receive is not supported with Join at this "
                      "time: tensor \"early (2 -> 1)\"; ");
    both_add(n, "x", 0, 1);
    assert_answers(n, "pair 0; x (0 -> 1); ");
    rank_add(n, 0, &late);
    assert_answers(n, "fails: Send and receive is not supported with Join at this "
                      "time: tensor \"late (0 -> 2)\"; ");
}

static bool is_stalled(void *arg, const struct negotiate_view *v)
{
    const char *want = arg;

    assert_string_equal(v->name, want);
    assert_int_equal(v->n_missing, 1);
    assert_false(negotiate_is_missing(v, 0));
    assert_true(negotiate_is_missing(v, 1));
    assert_false(negotiate_is_missing(v, 2));
    return true;
}

NEGOTIATE_TEST(the_one_that_is_late_is_missing, 3, 0)
{
    char name[] = "x (1 -> 0)";
    struct tensor_request q = request_transfer("x", 1, 0);

    rank_add(n, 0, &q);
    assert_int_equal(negotiate_pending(n), 1);
    negotiate_walk(n, is_stalled, name);
}

static struct tensor_request
by_members(const uint8_t *ranks, uint32_t n, const char *name)
{
    struct tensor_request q = set_of(ranks, n);

    q.root = SET_BY_MEMBERS;
    (void)snprintf(q.name, sizeof(q.name), "%s", name);
    return q;
}

NEGOTIATE_TEST(a_set_that_its_members_add_needs_nobody_else, 3, 1 << 20)
{
    struct tensor_request q = by_members(RANKS_0_AND_1, 2, "add"),
                          a = request_make(COLL_ALLREDUCE, "a");
    char name[] = "add";
    struct err err = ERR_INIT;

    assert_int_equal(negotiate_add(n, 2, &q, 1, &err), -EPROTO);
    assert_string_equal(err.text, "rank 2 adds a process set without itself");
    rank_add(n, 0, &q);
    negotiate_walk(n, is_stalled, name); /* rank 1 alone is missing */
    rank_add(n, 1, &q);
    assert_answers(n, "add = 1 by 2; "); /* rank 2 receives how many */
    a.process_set = 1;
    all_add(n, 2, &a);
    assert_answers(n, "a; ");
}

NEGOTIATE_TEST(a_set_of_members_is_not_that_of_all_ranks, 3, 1 << 20)
{
    struct tensor_request all = set_of(RANKS_0_AND_1, 2),
                          q = by_members(RANKS_0_AND_1, 2, "add");

    all_add(n, 3, &all);
    assert_answers(n, "set = 1; ");
    all_add(n, 2, &q);
    assert_answers(n, "add = 2 by 2; ");
    all_add(n, 2, &q);
    assert_answers(n, "fails: a process set with the same ranks exists already: 2; ");
    all_add(n, 3, &all);
    assert_answers(n, "fails: a process set with the same ranks exists already: 1; ");
}

NEGOTIATE_TEST(only_joined_members_are_in_the_way_of_their_set, 3, 1 << 20)
{
    struct tensor_request q = by_members(RANKS_0_AND_1, 2, "add"),
                          j = request_make(COLL_JOIN, "join");

    rank_add(n, 2, &j);
    all_add(n, 2, &q);
    assert_answers(n, "add = 1 by 2; ");
    (void)snprintf(q.name, sizeof(q.name), "again");
    rank_add(n, 1, &j);
    rank_add(n, 0, &q);
    assert_answers(n, "fails: Adding a process set is not supported with Join at this "
                      "time: tensor \"again\"; ");
}

enum { RANKS = 13 };

/* Those that their members add may be on their way together: the table counts. */
NEGOTIATE_TEST(there_are_not_more_sets_than_there_may_be, RANKS, 1 << 20)
{
    for (uint32_t mask = 1; mask <= NEGOTIATE_MAX_SETS; mask++) { /* and the world */
        uint8_t ranks[RANKS * 4] = {0};
        char want[64];
        struct tensor_request q = by_members(ranks, 0, "");

        (void)snprintf(q.name, sizeof(q.name), "add.%u", mask);
        for (uint32_t r = 0; r < RANKS; r++)
            if (mask >> r & 1)
                ranks[4 * q.n_set++] = (uint8_t)r;
        for (uint32_t r = 0; r < RANKS; r++)
            if (mask >> r & 1)
                rank_add(n, r, &q);
        if (mask == NEGOTIATE_MAX_SETS)
            (void)snprintf(want, sizeof(want), "fails: more than 4096 process sets; ");
        else
            (void)snprintf(want, sizeof(want), "add.%u = %u by %u; ", mask, mask,
                           q.n_set);
        assert_answers(n, want);
    }
}

UNIT_MAIN(NULL, NULL)
