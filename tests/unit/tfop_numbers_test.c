/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of eager operations without a name. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/tensorflow/numbers.h"

static const int allreduce, allgather;

static void the_lowest_free_one_is_taken(void **state)
{
    struct numbers *n = numbers_of(&allreduce, 0);

    (void)state;
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
static void each_set_and_each_kind_has_its_own(void **state)
{
    static const int32_t sets[] = {0, 1, 16, 32, 1000000};
    const size_t n_sets = sizeof(sets) / sizeof(sets[0]);

    (void)state;
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

static void threads_find_the_same(void **state)
{
    static struct numbers *found[2][500];
    pthread_t t[2];

    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lowest_free_one_is_taken),
        cmocka_unit_test(each_set_and_each_kind_has_its_own),
        cmocka_unit_test(threads_find_the_same),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
