/* SPDX-License-Identifier: Apache-2.0 */
/* The table of process sets: numbers, ends, threads; no world. Places and members:
 * tests/python/ranks/capi_sets.py. */
#include <pthread.h>
#include <stdatomic.h>

#include "tests/unit/unit.h"

#include "hvd.h"

#include "runtime/world/sets.h"
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

static void set_add_ok(
    struct sets *s, uint32_t id, struct backend *b, uint32_t n, const uint32_t *ranks)
{
    struct err err = ERR_INIT;

    if (sets_add(s, id, ranks, n, SET_BY_ALL, b, &err) < 0)
        fail_msg("%s", err.text);
}

/* Ids 4097 and 4098 are the numbers 1 and 2 again. */
UNIT_TEST(a_number_may_come_again_but_no_id)
{
    static const uint32_t a[] = {0}, b[] = {1}, c[] = {0, 1}, d[] = {2};
    struct counted backend[4] = {COUNTED, COUNTED, COUNTED, COUNTED};
    struct err err = ERR_INIT;
    struct sets s;
    uint32_t n, me;
    int ids[8];

    assert_int_equal(sets_init(&s, 0, 3), 0);
    set_add_ok(&s, 1, &backend[0].b, 1, a);
    set_add_ok(&s, 2, &backend[1].b, 1, b);
    set_add_ok(&s, 3, &backend[2].b, 2, c);
    assert_int_equal(sets_remove(&s, 2, &err), 0);
    assert_int_equal(backend[1].closed, 1);
    assert_int_equal(sets_report_unknown(&s, 2, &err), HVD_INVALID_ARGUMENT);
    assert_string_equal(err.text, "process set 2 does not exist");
    assert_int_equal(
        sets_add(&s, 1 + SET_NUMBERS, d, 1, SET_BY_ALL, &backend[3].b, &err), -EPROTO);
    assert_string_equal(err.text, "process set 1 exists already");
    set_add_ok(&s, 2 + SET_NUMBERS, &backend[3].b, 1, d);
    assert_int_equal(sets_ids(&s, ids, 8), 4);
    assert_int_equal(ids[0], 0);
    assert_int_equal(ids[1], 1);
    assert_int_equal(ids[2], 2 + SET_NUMBERS);
    assert_int_equal(ids[3], 3);
    assert_null(sets_find(&s, 2));
    assert_int_equal(sets_find(&s, 2 + SET_NUMBERS)->ranks[0], 2);
    assert_int_equal(sets_find(&s, 3)->n, 2);
    assert_int_equal(sets_place(&s, 2, &n, &me), -ENOENT);
    assert_int_equal(sets_place(&s, 2 + SET_NUMBERS, &n, &me), 0);
    assert_int_equal(sets_ranks(&s, 2, ids, 8), -ENOENT);
    assert_true(sets_member(&s, 2, 1) == SET_NOT_IN);
    assert_int_equal(sets_report_unknown(&s, 2, &err), HVD_INVALID_ARGUMENT);
    assert_string_equal(
        err.text, "process set 2 has been removed, and another one has its number now");
    assert_int_equal(sets_remove(&s, 2, &err), -ENOENT);
    assert_string_equal(err.text, "process set 2 does not exist");
    assert_int_equal(sets_remove(&s, 0, &err), -EINVAL);
    assert_string_equal(err.text, "process set 0 is the world and cannot be removed");
    assert_int_equal(sets_remove(&s, 2 + SET_NUMBERS, &err), 0);
    assert_int_equal(backend[3].closed, 1);
    assert_int_equal(sets_find(&s, 3)->n, 2);
    sets_release(&s);
    for (size_t i = 0; i < ARRAY_LEN(backend); i++)
        assert_int_equal(backend[i].closed, 1);
}

struct refusal {
    uint32_t n, ranks[4];
    int code;
    const char *text;
};

UNIT_TEST(bad_sets_are_refused_with_a_sentence)
{
    static const uint32_t first[] = {1, 2};
    static const struct refusal cases[] = {
        {0, {0}, -EINVAL, "a process set needs at least one rank"},
        {2, {0, 4}, -EINVAL, "process set: rank 4 is not in the world of 4 ranks"},
        {3, {0, 2, 2}, -EINVAL, "process set: rank 2 is listed twice"},
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

    assert_int_equal(sets_init(&s, 0, 4), 0);
    set_add_ok(&s, 1, NULL, 2, first);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct refusal *c = &cases[i];
        struct err err = ERR_INIT, early = ERR_INIT;

        assert_int_equal(sets_add(&s, 2, c->ranks, c->n, SET_BY_ALL, &backend.b, &err),
                         c->code);
        assert_string_equal(err.text, c->text);
        assert_int_equal(sets_check_new(&s, c->ranks, c->n, SET_BY_ALL, &early),
                         c->code);
        assert_string_equal(early.text, c->text);
    }
    assert_int_equal(backend.closed, 0); /* still the caller's */
    assert_int_equal(sets_ids(&s, NULL, 0), 2);
    sets_release(&s);
}

UNIT_TEST(sets_of_members_and_of_all_ranks_may_have_equal_ranks)
{
    static const uint32_t ranks[] = {0, 2}, whole[] = {0, 1, 2};
    struct err err = ERR_INIT;
    struct sets s;
    int id = -1, ids[4];

    assert_int_equal(sets_init(&s, 0, 3), 0);
    set_add_ok(&s, 1, NULL, 2, ranks);
    assert_false(sets_find_ranks(&s, ranks, 2, &id));
    assert_int_equal(sets_check_new(&s, ranks, 2, SET_BY_MEMBERS, &err), 0);
    assert_int_equal(sets_add(&s, 2, ranks, 2, SET_BY_MEMBERS, NULL, &err), 0);
    assert_true(sets_find_ranks(&s, ranks, 2, &id));
    assert_int_equal(id, 2);
    assert_int_equal(sets_check_new(&s, ranks, 2, SET_BY_MEMBERS, &err), -EEXIST);
    assert_int_equal(sets_check_new(&s, ranks, 2, SET_BY_ALL, &err), -EEXIST);
    assert_int_equal(sets_ids(&s, ids, 4), 2); /* and the world */
    assert_int_equal(ids[1], 1);
    assert_int_equal(sets_remove(&s, 1, &err), 0);
    assert_int_equal(sets_check_new(&s, ranks, 2, SET_BY_ALL, &err), 0);
    assert_int_equal(sets_find(&s, 2)->n, 2);
    assert_true(sets_find_ranks(&s, whole, 3, &id));
    assert_int_equal(id, 0);
    assert_int_equal(sets_check_new(&s, whole, 3, SET_BY_MEMBERS, &err), -EEXIST);
    sets_release(&s);
}

UNIT_TEST(there_is_a_bound)
{
    struct err err = ERR_INIT;
    struct sets s;
    uint32_t ranks[2];

    assert_int_equal(sets_init(&s, 0, SETS_MAX), 0);
    for (uint32_t i = 1; i < SETS_MAX; i++)
        set_add_ok(&s, i, NULL, 1, &i);
    ranks[0] = 0;
    ranks[1] = 1;
    assert_int_equal(sets_add(&s, 7 + SET_NUMBERS, ranks, 2, SET_BY_ALL, NULL, &err),
                     -E2BIG);
    assert_int_equal(sets_remove(&s, 7, &err), 0);
    set_add_ok(&s, 7 + SET_NUMBERS, NULL, 2, ranks);
    sets_release(&s);
}

/* --- threads: the seat changes, others ask --- */

struct race {
    struct sets s;
    _Atomic bool is_over;
    _Atomic int bad;
};

static void *reader_main(void *arg)
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

UNIT_TEST(sets_may_be_read_while_they_change)
{
    static const uint32_t ranks[] = {0, 1};
    static struct race race;
    struct err err = ERR_INIT;
    pthread_t th[2];

    assert_int_equal(sets_init(&race.s, 1, 3), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&th[i], NULL, reader_main, &race), 0);
    for (int i = 0; i < 3000; i++) {
        uint32_t id = 1 + (uint32_t)i * SET_NUMBERS;

        set_add_ok(&race.s, id, NULL, 2, ranks);
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
    int rc = sets_init(&s, 0, 3);

    (void)arg;
    rc = rc < 0 ? rc : sets_add(&s, 1, a, 1, SET_BY_ALL, NULL, &err);
    rc = rc < 0 ? rc : sets_add(&s, 2, b, 2, SET_BY_ALL, NULL, &err);
    sets_release(&s);
    return rc;
}

UNIT_TEST(every_allocation_may_fail)
{
    torture(make_sets, NULL);
}

UNIT_MAIN(NULL, NULL)
