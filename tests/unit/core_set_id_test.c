/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of process sets are reused, ids are not. */
#include "tests/unit/core_negotiate.h"

static void
change_set(struct negotiate *n, const struct tensor_request *q, uint32_t want_id)
{
    char want[32] = "set; ";

    if (q->coll == COLL_SET_ADD)
        (void)snprintf(want, sizeof(want), "set = %u; ", want_id);
    all_add(n, 3, q);
    assert_answers(n, want);
}

/* As Horovod: the one that has been free for longest. Ids are new all the same. */
NEGOTIATE_TEST(numbers_of_removed_sets_are_given_again, 3, 1 << 20)
{
    static const uint8_t ranks[][8] = {{0}, {1}, {2}, {0, 0, 0, 0, 1}, {0, 0, 0, 0, 2}};
    static const uint32_t want[] = {2 + SET_NUMBERS, 1 + SET_NUMBERS};
    struct tensor_request add[5], gone = request_make(COLL_SET_REMOVE, "set"), a;

    for (uint32_t i = 0; i < 5; i++)
        add[i] = set_of(ranks[i], i < 3 ? 1 : 2);
    for (uint32_t i = 0; i < 3; i++)
        change_set(n, &add[i], i + 1);
    gone.root = 2;
    change_set(n, &gone, 0);
    gone.root = 1;
    change_set(n, &gone, 0);
    for (uint32_t i = 0; i < 2; i++)
        change_set(n, &add[3 + i], want[i]);
    change_set(n, &add[0], 4); /* none is free */

    a = request_make(COLL_ALLREDUCE, "a");
    a.process_set = 2; /* on its way since before; 4098 are ranks 0 and 1 */
    rank_add(n, 2, &a);
    assert_answers(n, "fails: tensor \"a\": process set 2 does not exist; ");
    gone.root = 2 + SET_NUMBERS;
    change_set(n, &gone, 0);
    change_set(n, &add[1], 2 + 2 * SET_NUMBERS);
}

UNIT_TEST(an_id_is_never_a_pairs)
{
    uint32_t id = 7, n = 1;

    while (set_next_id(id, &id)) {
        assert_int_equal(set_number(id), 7);
        assert_false(pair_is(id));
        n++;
    }
    assert_int_equal(n, 1u << 19);
    assert_int_equal(set_number(pair_of(3, 4)), pair_of(3, 4));
}

UNIT_MAIN(NULL, NULL)
