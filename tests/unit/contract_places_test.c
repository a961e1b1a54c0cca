/* SPDX-License-Identifier: Apache-2.0 */
/* Placement against a table and against a reference that counts by the definition. */
#include "tests/unit/unit.h"

#include "runtime/contract/places.h"
#include "tests/unit/seeded.h"
#include "tests/unit/torture.h"

UNIT_TEST(uneven_hosts_match_the_table)
{
    CLEANUP(hostlist_release) struct hostlist hl = {0};
    struct place p[5];
    static const struct place want[] = {
        /* rank size lrank lsize crank csize host */
        {0, 5, 0, 2, 0, 3, 0}, {1, 5, 1, 2, 0, 2, 0}, {2, 5, 0, 1, 1, 3, 1},
        {3, 5, 0, 2, 2, 3, 2}, {4, 5, 1, 2, 1, 2, 2},
    };

    assert_int_equal(hostlist_parse_hosts("a:2,b:1,c:4", &hl, NULL), 0);
    assert_int_equal(places_assign(&hl, 5, p, NULL), 0);
    assert_memory_equal(p, want, sizeof(want));
}

UNIT_TEST(too_few_slots_error_has_both_numbers)
{
    CLEANUP(hostlist_release) struct hostlist hl = {0};
    struct err e = ERR_INIT;
    struct place p[8];

    assert_int_equal(places_assign(&hl, 0, p, &e), -EINVAL);
    assert_int_equal(hostlist_parse_hosts("a:2,b:1", &hl, NULL), 0);
    assert_int_equal(places_assign(&hl, 4, p, &e), -EINVAL);
    assert_string_equal(e.text,
                        "4 processes are requested, but the 2 hosts have 3 slots");
    assert_int_equal(places_at(&hl, 2, 1, 0, p, &e), -EINVAL); /* host b has no rank */
    assert_int_equal(places_at(&hl, 0, 0, 2, p, &e), -EINVAL);
    assert_int_equal(places_at(&hl, 0, 2, 0, p, &e), -EINVAL);
}

/* By the definition, one rank at a time: slow and plain. */
static struct place
place_reference(const struct hostlist *hl, uint32_t size, uint32_t rank)
{
    struct place p = {.rank = rank, .size = size};
    uint32_t used[64] = {0}, left = size, seen = 0;

    for (size_t h = 0; h < hl->n; h++) {
        used[h] = hl->v[h].slots < left ? hl->v[h].slots : left;
        left -= used[h];
    }
    for (size_t h = 0; h < hl->n; h++) {
        if (rank >= seen && rank < seen + used[h]) {
            p.host = (uint32_t)h;
            p.local_rank = rank - seen;
            p.local_size = used[h];
        }
        seen += used[h];
    }
    for (size_t h = 0; h < hl->n; h++) {
        if (used[h] <= p.local_rank)
            continue;
        p.cross_size++;
        if (h < p.host)
            p.cross_rank++;
    }
    return p;
}

UNIT_TEST(random_hosts_match_the_definition)
{
    struct seeded r = {.state = 7};

    for (int round = 0; round < 2000; round++) {
        CLEANUP(hostlist_release) struct hostlist hl = {0};
        uint32_t n = 1 + seeded_below(&r, 12);
        struct place p[12 * 8], q;

        for (uint32_t h = 0; h < n; h++)
            assert_int_equal(
                hostlist_append(&hl, "same",
                                h ? seeded_below(&r, 8) : 1 + seeded_below(&r, 8),
                                NULL),
                0);
        uint32_t slots = (uint32_t)hostlist_slots(&hl);
        uint32_t np = seeded_below(&r, slots + 1), size = np ? np : slots;
        assert_int_equal(places_assign(&hl, np, p, NULL), 0);
        for (uint32_t i = 0; i < size; i++) {
            struct place want = place_reference(&hl, size, i);

            assert_memory_equal(&p[i], &want, sizeof(want));
            assert_int_equal(place_check(&p[i], NULL), 0);
            assert_int_equal(places_at(&hl, np, want.host, want.local_rank, &q, NULL),
                             0);
            assert_memory_equal(&q, &want, sizeof(want));
        }
    }
}

UNIT_TEST(ranks_stay_when_hosts_are_added)
{
    CLEANUP(hostlist_release) struct hostlist hl = {0};
    struct place before[7], after[12];

    assert_int_equal(hostlist_parse_hosts("a:4,b:3", &hl, NULL), 0);
    assert_int_equal(places_assign(&hl, 0, before, NULL), 0);
    assert_int_equal(hostlist_append(&hl, "c", 5, NULL), 0);
    assert_int_equal(places_assign(&hl, 0, after, NULL), 0);
    for (int i = 0; i < 7; i++) {
        assert_int_equal(after[i].host, before[i].host);
        assert_int_equal(after[i].local_rank, before[i].local_rank);
        assert_int_equal(after[i].cross_rank, before[i].cross_rank);
    }
}

UNIT_TEST(contradictions_name_two_fields)
{
    static const struct {
        struct place p;
        const char *says;
    } t[] = {
        {{4, 4, 0, 1, 0, 4, 0}, "rank=4 is not below size=4"},
        {{0, 0, 0, 1, 0, 1, 0}, "rank=0 is not below size=0"},
        {{0, 4, 2, 2, 0, 2, 0}, "local_rank=2 is not below local_size=2"},
        {{0, 4, 0, 2, 2, 2, 0}, "cross_rank=2 is not below cross_size=2"},
        {{0, 4, 0, 5, 0, 1, 0}, "local_size=5 exceeds size=4"},
        {{0, 4, 0, 1, 0, 5, 0}, "cross_size=5 exceeds size=4"},
        {{0, WORLD_MAX_RANKS + 1, 0, 1, 0, 1, 0}, "exceeds the limit=1048576"},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct err e = ERR_INIT;

        assert_int_equal(place_check(&t[i].p, &e), -EINVAL);
        assert_non_null(strstr(e.text, t[i].says));
    }
}

static int places_assign_all(void *arg)
{
    struct place p[7];

    return places_assign(arg, 0, p, NULL);
}

UNIT_TEST(lack_of_memory_is_an_error)
{
    CLEANUP(hostlist_release) struct hostlist hl = {0};

    assert_int_equal(hostlist_parse_hosts("a:4,b:3", &hl, NULL), 0);
    torture(places_assign_all, &hl);
}

UNIT_MAIN(NULL, NULL)
