/* SPDX-License-Identifier: Apache-2.0 */
/* The table of process sets: ids, places, copies, ends; no world. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/api/sets.h"
#include "tests/unit/torture.h"

/* A communicator that only counts its end. */
struct counted {
    struct backend b;
    int closed;
};

static void close_counted(struct backend *b)
{
    ((struct counted *)(void *)b)->closed++;
}

static const struct backend_ops counted_ops = {.name = "counted",
                                               .close = close_counted};

#define COUNTED                                                                        \
    {                                                                                  \
        .b = {.ops = &counted_ops }                                                    \
    }

static uint32_t
add(struct sets *s, struct backend *b, uint32_t n, const uint32_t *ranks)
{
    struct err err = ERR_INIT;
    uint32_t id;

    if (sets_add(s, ranks, n, b, &id, &err) < 0)
        fail_msg("%s", err.text);
    return id;
}

static void the_world_is_set_0(void **state)
{
    struct counted world = COUNTED;
    struct sets s;
    int ranks[8], ids[2] = {-1, -1};
    uint32_t n, me;

    (void)state;
    assert_int_equal(sets_init(&s, 2, 5), 0);
    sets_lend(&s, &world.b);
    assert_int_equal(sets_place(&s, 0, &n, &me), 0);
    assert_int_equal(n, 5);
    assert_int_equal(me, 2);
    assert_int_equal(sets_ranks(&s, 0, ranks, 8), 5);
    for (int i = 0; i < 5; i++)
        assert_int_equal(ranks[i], i);
    assert_int_equal(sets_ids(&s, ids, 2), 1);
    assert_int_equal(ids[0], 0);
    assert_int_equal(ids[1], -1);
    assert_ptr_equal(sets_find(&s, 0)->backend, &world.b);
    sets_release(&s);
    assert_int_equal(world.closed, 0); /* borrowed */
    sets_release(&s);                  /* twice is fine */
}

static void places_are_in_the_set(void **state)
{
    static const uint32_t ranks[] = {1, 3, 4};
    struct sets s;
    int out[3] = {-1, -1, -1};
    uint32_t n, me, id;

    (void)state;
    for (uint32_t rank = 0; rank < 6; rank++) {
        assert_int_equal(sets_init(&s, rank, 6), 0);
        id = add(&s, NULL, 3, ranks);
        assert_int_equal(id, 1);
        assert_int_equal(sets_place(&s, id, &n, &me), 0);
        assert_int_equal(n, 3);
        assert_true(me
                    == (rank == 1   ? 0u
                        : rank == 3 ? 1u
                        : rank == 4 ? 2u
                                    : SET_NOT_IN));
        assert_int_equal(sets_find(&s, id)->me, me);
        sets_release(&s);
    }
    assert_int_equal(sets_init(&s, 0, 6), 0);
    id = add(&s, NULL, 3, ranks);
    assert_int_equal(sets_member(&s, id, 4), 2);
    assert_true(sets_member(&s, id, 2) == SET_NOT_IN);
    assert_true(sets_member(&s, id, 5) == SET_NOT_IN);
    assert_true(sets_member(&s, 9, 1) == SET_NOT_IN);
    assert_int_equal(sets_member(&s, 0, 5), 5);
    assert_true(sets_member(&s, 0, 6) == SET_NOT_IN);
    assert_int_equal(sets_ranks(&s, id, out, 2), 3); /* as much as there is room for */
    assert_int_equal(out[1], 3);
    assert_int_equal(out[2], -1);
    assert_int_equal(sets_ranks(&s, 9, out, 3), -ENOENT);
    assert_int_equal(sets_place(&s, 9, &n, &me), -ENOENT);
    assert_null(sets_find(&s, 9));
    sets_release(&s);
}

static void ids_are_never_used_twice(void **state)
{
    static const uint32_t a[] = {0}, b[] = {1}, c[] = {0, 1}, d[] = {2};
    struct counted backend[4] = {COUNTED, COUNTED, COUNTED, COUNTED};
    struct err err = ERR_INIT;
    struct sets s;
    int ids[8];

    (void)state;
    assert_int_equal(sets_init(&s, 0, 3), 0);
    assert_int_equal(add(&s, &backend[0].b, 1, a), 1);
    assert_int_equal(add(&s, &backend[1].b, 1, b), 2);
    assert_int_equal(add(&s, &backend[2].b, 2, c), 3);
    assert_int_equal(sets_remove(&s, 2, &err), 0);
    assert_int_equal(backend[1].closed, 1);
    assert_int_equal(sets_remove(&s, 3, &err), 0);
    assert_int_equal(add(&s, NULL, 1, b), 4); /* the same ranks again: another set */
    assert_int_equal(add(&s, NULL, 1, d), 5);
    assert_int_equal(sets_ids(&s, ids, 8), 4);
    assert_int_equal(ids[0], 0);
    assert_int_equal(ids[1], 1);
    assert_int_equal(ids[2], 4);
    assert_int_equal(ids[3], 5);
    assert_null(sets_find(&s, 2));
    assert_int_equal(sets_find(&s, 4)->ranks[0], 1);
    assert_int_equal(sets_remove(&s, 2, &err), -ENOENT);
    assert_string_equal(err.text, "process set 2 does not exist");
    assert_int_equal(sets_remove(&s, 0, &err), -EINVAL);
    assert_string_equal(err.text, "process set 0 is the world and cannot be removed");
    sets_release(&s);
    assert_int_equal(backend[0].closed, 1);
    assert_int_equal(backend[1].closed, 1);
    assert_int_equal(backend[2].closed, 1);
}

struct refusal {
    uint32_t n, ranks[4];
    int code;
    const char *text;
};

static void bad_sets_are_refused_with_a_sentence(void **state)
{
    static const uint32_t first[] = {1, 2};
    static const struct refusal cases[] = {
        {0, {0}, -EINVAL, "a process set needs at least one rank"},
        {2, {0, 4}, -EINVAL, "process set: rank 4 is not in the world of 4 ranks"},
        {3, {0, 2, 2}, -EINVAL, "process set: rank 2 is in it twice"},
        {2, {2, 0}, -EINVAL, "process set: ranks must be ascending"},
        {2,
         {1, 2},
         -EEXIST,
         "a process set containing the same ranks already exists: process set 1"},
        {4,
         {0, 1, 2, 3},
         -EEXIST,
         "a process set containing the same ranks already exists: process set 0"},
    };
    struct counted backend = COUNTED;
    struct sets s;
    uint32_t id;

    (void)state;
    assert_int_equal(sets_init(&s, 0, 4), 0);
    assert_int_equal(add(&s, NULL, 2, first), 1);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct refusal *c = &cases[i];
        struct err err = ERR_INIT, early = ERR_INIT;

        assert_int_equal(sets_add(&s, c->ranks, c->n, &backend.b, &id, &err), c->code);
        assert_string_equal(err.text, c->text);
        assert_int_equal(sets_check_new(&s, c->ranks, c->n, &early), c->code);
        assert_string_equal(early.text, c->text);
    }
    assert_int_equal(backend.closed, 0); /* still the caller's */
    assert_int_equal(sets_ids(&s, NULL, 0), 2);
    sets_release(&s);
}

static void there_is_a_bound(void **state)
{
    struct err err = ERR_INIT;
    struct sets s;
    uint32_t id, ranks[2];

    (void)state;
    assert_int_equal(sets_init(&s, 0, SETS_MAX), 0);
    for (uint32_t i = 1; i < SETS_MAX; i++)
        assert_int_equal(add(&s, NULL, 1, &i), i);
    ranks[0] = 0;
    ranks[1] = 1;
    assert_int_equal(sets_add(&s, ranks, 2, NULL, &id, &err), -E2BIG);
    assert_int_equal(sets_remove(&s, 7, &err), 0);
    assert_int_equal(add(&s, NULL, 2, ranks), SETS_MAX);
    sets_release(&s);
}

/* --- threads: the seat changes, others ask --- */

struct race {
    struct sets s;
    _Atomic bool is_over;
    _Atomic int bad;
};

static void *asker(void *arg)
{
    struct race *r = arg;
    uint32_t n, me;
    int ids[4], ranks[4];

    while (!atomic_load(&r->is_over)) {
        int k = sets_ids(&r->s, ids, 4);

        if (k < 1 || k > 2 || ids[0] != 0)
            atomic_fetch_add(&r->bad, 1);
        if (k == 2 && sets_place(&r->s, (uint32_t)ids[1], &n, &me) == 0
            && (n != 2 || me != 1))
            atomic_fetch_add(&r->bad, 1);
        if (k == 2 && sets_ranks(&r->s, (uint32_t)ids[1], ranks, 4) == 2
            && (ranks[0] != 0 || ranks[1] != 1))
            atomic_fetch_add(&r->bad, 1);
    }
    return NULL;
}

static void others_may_ask_while_sets_come_and_go(void **state)
{
    static const uint32_t ranks[] = {0, 1};
    static struct race race;
    struct err err = ERR_INIT;
    pthread_t th[2];

    (void)state;
    assert_int_equal(sets_init(&race.s, 1, 3), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&th[i], NULL, asker, &race), 0);
    for (int i = 0; i < 3000; i++) {
        uint32_t id = add(&race.s, NULL, 2, ranks);

        assert_int_equal(sets_remove(&race.s, id, &err), 0);
    }
    atomic_store(&race.is_over, true);
    for (int i = 0; i < 2; i++)
        (void)pthread_join(th[i], NULL);
    assert_int_equal(atomic_load(&race.bad), 0);
    sets_release(&race.s);
}

/* --- every allocation fails in turn --- */

static int make_sets(void *arg)
{
    static const uint32_t a[] = {0}, b[] = {0, 1};
    struct err err = ERR_INIT;
    struct sets s;
    uint32_t id;
    int r = sets_init(&s, 0, 3);

    (void)arg;
    r = r < 0 ? r : sets_add(&s, a, 1, NULL, &id, &err);
    r = r < 0 ? r : sets_add(&s, b, 2, NULL, &id, &err);
    sets_release(&s);
    return r;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    torture(make_sets, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_world_is_set_0),
        cmocka_unit_test(places_are_in_the_set),
        cmocka_unit_test(ids_are_never_used_twice),
        cmocka_unit_test(bad_sets_are_refused_with_a_sentence),
        cmocka_unit_test(there_is_a_bound),
        cmocka_unit_test(others_may_ask_while_sets_come_and_go),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
