/* SPDX-License-Identifier: Apache-2.0 */
/* How long what arrived is held back, on a clock of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/core/gather.h"

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

static void without_a_window_nothing_is_held(void **state)
{
    struct gather g = {0};

    (void)state;
    gather_add_tensor(&g, 10, 1000);
    assert_false(gather_holds(&g, 1000, false));
    gather_set(&g, 0, 1 << 20);
    gather_add_tensor(&g, 10, 1000);
    assert_int_equal(g.until_ns, 0);
}

static void the_first_one_opens_the_window(void **state)
{
    struct gather g = {0};

    (void)state;
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

static void nothing_more_to_come_ends_it(void **state)
{
    struct gather g = {0};

    (void)state;
    gather_set(&g, 500, 1 << 20);
    gather_add_tensor(&g, 10, 1000);
    assert_false(gather_holds(&g, 1001, true));
    assert_int_equal(g.until_ns, 0);
}

static void a_full_batch_ends_it(void **state)
{
    struct gather g = {0};

    (void)state;
    gather_set(&g, 500, 100);
    gather_add_tensor(&g, 60, 1000);
    assert_true(gather_holds(&g, 1001, false));
    gather_add_tensor(&g, 39, 1001);
    assert_true(gather_holds(&g, 1001, false));
    gather_add_tensor(&g, 1, 1001);
    assert_false(gather_holds(&g, 1002, false));
    gather_add_tensor(&g, 100, 1010); /* one that fills it alone */
    assert_false(gather_holds(&g, 1011, false));
    gather_add_tensor(&g, 99, 1020); /* counted anew */
    assert_true(gather_holds(&g, 1021, false));
    gather_set(&g, 500, 0); /* no fusion: waiting wins nothing */
    assert_false(gather_holds(&g, 1021, false));
    gather_add_tensor(&g, 1, 1030);
    assert_false(gather_holds(&g, 1031, false));
}

static void what_cannot_be_fused_does_not_wait(void **state)
{
    static const enum collective colls[] = {COLL_ALLGATHER, COLL_BARRIER, COLL_ALLTOALL,
                                            COLL_JOIN, COLL_SET_ADD};
    struct gather g = {0};

    (void)state;
    for (size_t i = 0; i < sizeof(colls) / sizeof(*colls); i++) {
        struct tensor_request r = request_make(colls[i], 1);

        gather_set(&g, 500, 1 << 20);
        gather_add_tensor(&g, 10, 1000);
        assert_true(gather_holds(&g, 1001, false));
        gather_add(&g, &r, 1001); /* and takes the others along */
        assert_false(gather_holds(&g, 1002, false));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_window_nothing_is_held),
        cmocka_unit_test(the_first_one_opens_the_window),
        cmocka_unit_test(nothing_more_to_come_ends_it),
        cmocka_unit_test(a_full_batch_ends_it),
        cmocka_unit_test(what_cannot_be_fused_does_not_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
