/* SPDX-License-Identifier: Apache-2.0 */
/* What process sets are called: numbers come again, ids do not. */
#include "runtime/core/pair.h"
#include "tests/unit/core_negotiate.h"

static uint32_t
change_set(struct negotiate *n, const struct tensor_request *q, uint32_t n_ranks)
{
    struct answers got = {0};
    struct down d;

    for (uint32_t rank = 0; rank < n_ranks; rank++)
        assert_int_equal(negotiate_add(n, rank, q, 1, NULL), 0);
    assert_int_equal(answers_take(n, &got, n_ranks), 1);
    d = answers_expect(&got);
    assert_int_equal(d.kind, DOWN_RUN);
    strbuf_release(&got.b);
    return d.req.process_set;
}

/* As Horovod: the one that has been free for longest. Ids are new all the same. */
static void numbers_of_removed_sets_are_given_again(void **state)
{
    static const uint8_t ranks[][8] = {{0}, {1}, {2}, {0, 0, 0, 0, 1}, {0, 0, 0, 0, 2}};
    static const uint32_t want[] = {2 + SET_NUMBERS, 1 + SET_NUMBERS};
    struct tensor_request add[5], gone = request_make(COLL_SET_REMOVE, "set"), a;
    struct negotiate *n = negotiate_make(3, 1 << 20);
    struct answers got = {0};

    (void)state;
    for (uint32_t i = 0; i < 5; i++)
        add[i] = set_of(ranks[i], i < 3 ? 1 : 2);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(change_set(n, &add[i], 3), i + 1);
    gone.root = 2;
    (void)change_set(n, &gone, 3);
    gone.root = 1;
    (void)change_set(n, &gone, 3);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(change_set(n, &add[3 + i], 3), want[i]);
    assert_int_equal(change_set(n, &add[0], 3), 4); /* none is free */

    a = request_make(COLL_ALLREDUCE, "a");
    a.process_set = 2; /* on its way since before; 4098 are ranks 0 and 1 */
    assert_int_equal(negotiate_add(n, 2, &a, 1, NULL), 0);
    assert_int_equal(answers_take(n, &got, 3), 1);
    assert_string_equal(answers_expect(&got).text,
                        "tensor \"a\": process set 2 does not exist");
    strbuf_release(&got.b);
    gone.root = 2 + SET_NUMBERS;
    (void)change_set(n, &gone, 3);
    assert_int_equal(change_set(n, &add[1], 3), 2 + 2 * SET_NUMBERS);
    negotiate_free(n);
}

static void an_id_is_never_a_pairs(void **state)
{
    uint32_t id = 7, n = 1;

    (void)state;
    while (set_next_id(id, &id)) {
        assert_int_equal(set_number(id), 7);
        assert_false(pair_is(id));
        n++;
    }
    assert_int_equal(n, 1u << 19);
    assert_int_equal(set_number(pair_of(3, 4)), pair_of(3, 4));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_of_removed_sets_are_given_again),
        cmocka_unit_test(an_id_is_never_a_pairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
