/* SPDX-License-Identifier: Apache-2.0 */
/* Which tensor gets which slot of the response cache. What a slot stands for to a rank
 * that has not seen its last answer, and lack of memory, are core_sim_test's. */
#include "runtime/core/records.h"
#include "runtime/core/slots.h"
#include "tests/unit/core_request.h"

enum { RANKS = 3 };

struct fixture {
    struct slots *s;
    uint64_t seen[RANKS];
    uint64_t msg;
};

/* A test of so many slots. */
#define SLOTS_TEST(name, capacity)                                                     \
    static void name##_in(struct fixture *f);                                          \
    UNIT_TEST(name)                                                                    \
    {                                                                                  \
        struct fixture f = {.msg = 0};                                                 \
                                                                                       \
        assert_int_equal(slots_new(capacity, RANKS, &f.s), 0);                         \
        name##_in(&f);                                                                 \
        slots_free(f.s);                                                               \
    }                                                                                  \
    static void name##_in(struct fixture *f)

static void all_see(struct fixture *f)
{
    for (size_t i = 0; i < RANKS; i++)
        f->seen[i] = f->msg;
}

/* The next answer is about this tensor. */
static uint32_t slots_answer(struct fixture *f, const char *name, bool is_new)
{
    struct tensor_request q = request_make(COLL_ALLREDUCE, name);
    bool got;
    uint32_t slot = slots_assign(f->s, &q, NULL, ++f->msg, f->seen, &got);

    assert_int_equal(got, is_new);
    return slot;
}

SLOTS_TEST(a_tensor_keeps_its_slot, 2)
{
    assert_int_equal(slots_answer(f, "a", true), 0);
    assert_int_equal(slots_answer(f, "b", true), 1);
    assert_int_equal(slots_answer(f, "a", false), 0);
    assert_int_equal(slots_answer(f, "b", false), 1);
    assert_int_equal(slots_find(f->s, 0, "a"), 0);
    assert_int_equal(slots_find(f->s, 0, "c"), SLOT_NONE);
    assert_int_equal(slots_find(f->s, 1, "a"), SLOT_NONE);
    assert_string_equal(slots_request(f->s, 1)->name, "b");
    assert_null(slots_request(f->s, 2));
}

SLOTS_TEST(a_new_shape_stays_in_the_slot, 4)
{
    struct tensor_request q = request_make(COLL_ALLREDUCE, "a");
    bool is_new;

    (void)slots_answer(f, "a", true);
    q.shape[1] = 7;
    assert_int_equal(slots_assign(f->s, &q, NULL, 2, f->seen, &is_new), 0);
    assert_true(is_new);
    assert_int_equal(slots_resolve(f->s, 0, 0, 1)->shape[1], 3);
    assert_int_equal(slots_resolve(f->s, 0, 0, 2)->shape[1], 7);
    q.shape[1] = 8; /* nobody has seen 7 yet */
    assert_int_equal(slots_assign(f->s, &q, NULL, 3, f->seen, &is_new), SLOT_NONE);
    assert_true(is_new);
    assert_int_equal(slots_resolve(f->s, 0, 0, 3)->shape[1], 7);
}

SLOTS_TEST(the_one_unused_for_longest_goes, 3)
{
    (void)slots_answer(f, "a", true);
    (void)slots_answer(f, "b", true);
    (void)slots_answer(f, "c", true);
    (void)slots_answer(f, "a", false);
    all_see(f);
    assert_int_equal(slots_answer(f, "d", true), 1);
    assert_int_equal(slots_find(f->s, 0, "b"), SLOT_NONE);
    all_see(f);
    assert_int_equal(slots_answer(f, "e", true), 2);
    all_see(f);
    assert_int_equal(slots_answer(f, "b", true), 0);
    assert_int_equal(slots_find(f->s, 0, "a"), SLOT_NONE);
}

/* The bit may come from another rank, whose reason it is not. */
SLOTS_TEST(why_one_has_no_gpu_is_not_kept, 4)
{
    struct tensor_request q = request_make(COLL_ALLREDUCE, "a");
    bool is_new;

    (void)snprintf(q.no_gpu, sizeof(q.no_gpu), "no driver");
    assert_int_equal(slots_assign(f->s, &q, NULL, 1, f->seen, &is_new), 0);
    assert_string_equal(slots_request(f->s, 0)->no_gpu, "");
}

/* --- the other side --- */

UNIT_TEST(a_record_answers_what_it_was)
{
    struct tensor_request a = request_make(COLL_ALLGATHER, "a"),
                          b = request_make(COLL_ALLREDUCE, "b"), c = a;
    uint64_t counts[2] = {2, 5};
    struct records t = {0};

    assert_int_equal(records_set(&t, 3, &a, true, counts, 2), 0);
    assert_null(records_get(&t, 2));
    assert_null(records_get(&t, 99));
    assert_int_equal(records_match(&t, &a)->slot, 3);
    assert_int_equal(records_get(&t, 3)->counts[1], 5);
    c.shape[0]++;
    assert_null(records_match(&t, &c));
    assert_int_equal(records_set(&t, 5, &c, true, NULL, 0), 0); /* the name moves */
    assert_null(records_get(&t, 3));
    assert_int_equal(records_match(&t, &c)->slot, 5);
    assert_int_equal(records_set(&t, 5, &b, true, NULL, 0), 0);
    assert_null(records_match(&t, &c));
    assert_int_equal(records_match(&t, &b)->slot, 5);
    assert_int_equal(records_set(&t, 5, &b, false, NULL, 0), 0); /* somebody else's */
    assert_string_equal(records_get(&t, 5)->req.name, "b");
    assert_null(records_match(&t, &b));
    records_release(&t);
}

UNIT_MAIN(NULL, NULL)
