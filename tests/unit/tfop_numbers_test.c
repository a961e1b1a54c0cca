/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of eager operations without a name. */
#include <pthread.h>

#include "tests/unit/unit.h"

#include "runtime/tensorflow/numbers.h"

static const int allreduce, allgather;

UNIT_TEST(the_lowest_free_one_is_taken)
{
    struct numbers *n = numbers_of(&allreduce, 0);

    assert_non_null(n);
    for (int i = 0; i < NUMBERS_MAX; i++)
        assert_int_equal(numbers_take(n), i);
    assert_int_equal(numbers_take(n), NUMBERS_MAX);
    numbers_give_back(n, NUMBERS_MAX);
    assert_int_equal(numbers_take(n), NUMBERS_MAX);
    numbers_give_back(n, 63);
    numbers_give_back(n, 7);
    assert_int_equal(numbers_take(n), 7);
    assert_int_equal(numbers_take(n), 63);
    for (int i = 0; i < NUMBERS_MAX; i++)
        numbers_give_back(n, i);
}

/* 16 and 32: sets whose numbers were one until they had some of their own */
UNIT_TEST(each_set_and_each_kind_has_its_own)
{
    static const int32_t sets[] = {0, 1, 16, 32, 1000000};
    const size_t n_sets = sizeof(sets) / sizeof(sets[0]);

    for (size_t i = 0; i < n_sets; i++) {
        assert_int_equal(numbers_take(numbers_of(&allreduce, sets[i])), 0);
        assert_int_equal(numbers_take(numbers_of(&allgather, sets[i])), 0);
        assert_ptr_equal(numbers_of(&allreduce, sets[i]),
                         numbers_of(&allreduce, sets[i]));
    }
    for (size_t i = 0; i < n_sets; i++) {
        numbers_give_back(numbers_of(&allreduce, sets[i]), 0);
        numbers_give_back(numbers_of(&allgather, sets[i]), 0);
    }
}

static void *thread_takes_numbers(void *arg)
{
    struct numbers **found = arg;

    for (int32_t set = 0; set < 500; set++)
        found[set] = numbers_of(&allgather, 1000 + set % 250);
    return NULL;
}

UNIT_TEST(threads_find_the_same)
{
    static struct numbers *found[2][500];
    pthread_t t[2];

    for (size_t i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&t[i], NULL, thread_takes_numbers, found[i]),
                         0);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(pthread_join(t[i], NULL), 0);
    for (size_t i = 0; i < 500; i++) {
        assert_non_null(found[0][i]);
        assert_ptr_equal(found[0][i], found[1][i]);
        assert_ptr_equal(found[0][i], found[0][i % 250]);
    }
}

UNIT_MAIN(NULL, NULL)
