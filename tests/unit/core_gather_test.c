/* SPDX-License-Identifier: Apache-2.0 */
/* How long what arrived is held back, on a clock of its own. */
#include "runtime/core/gather.h"
#include "tests/unit/unit.h"

static struct tensor_request request_make(enum collective coll, int64_t n)
{
    return (struct tensor_request){
        .coll = coll, .dtype = DT_U8, .op = OP_SUM, .ndim = 1, .shape = {n}};
}

static void gather_add_tensor(struct gather *g, int64_t n, uint64_t at)
{
    struct tensor_request r = request_make(COLL_ALLREDUCE, n);

    gather_add(g, &r, at);
}

UNIT_TEST(without_a_window_nothing_is_held)
{
    struct gather g = {0};

    gather_add_tensor(&g, 10, 1000);
    assert_false(gather_holds(&g, 1000, false));
    gather_set(&g, 0, 1 << 20);
    gather_add_tensor(&g, 10, 1000);
    assert_int_equal(g.until_ns, 0);
}

UNIT_TEST(the_first_one_opens_the_window)
{
    struct gather g = {0};

    gather_set(&g, 500, 1 << 20);
    assert_false(gather_holds(&g, 0, false)); /* nothing has come */
    gather_add_tensor(&g, 10, 1000);
    gather_add_tensor(&g, 10, 1400); /* does not make it longer */
    assert_int_equal(g.until_ns, 1500);
    assert_true(gather_holds(&g, 1499, false));
    assert_false(gather_holds(&g, 1500, false));
    assert_false(gather_holds(&g, 1000, false)); /* it stays closed */
    gather_add_tensor(&g, 10, 2000);
    assert_int_equal(g.until_ns, 2500);
}

UNIT_TEST(nothing_more_to_come_ends_it)
{
    struct gather g = {0};

    gather_set(&g, 500, 1 << 20);
    gather_add_tensor(&g, 10, 1000);
    assert_false(gather_holds(&g, 1001, true));
    assert_int_equal(g.until_ns, 0);
}

UNIT_TEST(a_full_batch_ends_it)
{
    struct gather g = {0};

    gather_set(&g, 500, 100);
    gather_add_tensor(&g, 60, 1000);
    assert_true(gather_holds(&g, 1001, false));
    gather_add_tensor(&g, 39, 1001);
    assert_true(gather_holds(&g, 1001, false));
    gather_add_tensor(&g, 1, 1001);
    assert_false(gather_holds(&g, 1002, false));
    gather_add_tensor(&g, 100, 1010); /* one that fills it alone */
    assert_false(gather_holds(&g, 1011, false));
    gather_add_tensor(&g, 99, 1020); /* counted again */
    assert_true(gather_holds(&g, 1021, false));
    gather_set(&g, 500, 0); /* no fusion: waiting wins nothing */
    assert_false(gather_holds(&g, 1021, false));
    gather_add_tensor(&g, 1, 1030);
    assert_false(gather_holds(&g, 1031, false));
}

UNIT_TEST(what_cannot_be_fused_does_not_wait)
{
    static const enum collective colls[] = {COLL_ALLGATHER, COLL_BARRIER, COLL_ALLTOALL,
                                            COLL_JOIN, COLL_SET_ADD};
    struct gather g = {0};

    for (size_t i = 0; i < sizeof(colls) / sizeof(*colls); i++) {
        struct tensor_request r = request_make(colls[i], 1);

        gather_set(&g, 500, 1 << 20);
        gather_add_tensor(&g, 10, 1000);
        assert_true(gather_holds(&g, 1001, false));
        gather_add(&g, &r, 1001); /* and the pending tensors go with it */
        assert_false(gather_holds(&g, 1002, false));
    }
}

UNIT_MAIN(NULL, NULL)
