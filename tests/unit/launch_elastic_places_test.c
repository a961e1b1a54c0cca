/* SPDX-License-Identifier: Apache-2.0 */
/* elastic_places.c: worlds that have gaps, in a table; full worlds, against
 * contract/places.c; random worlds, against the definitions. */
#include "runtime/launch/core/elastic_places.h"

#include "runtime/base/mem.h"
#include "tests/unit/launch_leader.h"
#include "tests/unit/unit.h"

#define W_MAX 8
#define S_MAX 4
#define N_MAX (W_MAX * S_MAX)
#define SEEDS 20000

/* "HOST LOCAL_RANK/LOCAL_SIZE CROSS_RANK/CROSS_SIZE, ..." by rank */
static const char *
world_text(const uint32_t *members, uint32_t n, uint32_t slots, struct strbuf *out)
{
    struct place p[N_MAX];
    struct err err = ERR_INIT;

    strbuf_init(out, 1024);
    assert_int_equal(elastic_places(members, n, slots, p, &err), 0);
    for (uint32_t r = 0; r < n; r++) {
        assert_int_equal(p[r].rank, r);
        assert_int_equal(p[r].size, n);
        strbuf_printf(out, "%s%u %u/%u %u/%u", r ? ", " : "", p[r].host,
                      p[r].local_rank, p[r].local_size, p[r].cross_rank,
                      p[r].cross_size);
    }
    return strbuf_str(out);
}

/* "RANK/SIZE LOCAL_RANK/LOCAL_SIZE CROSS_RANK/CROSS_SIZE" */
static void new_process_has(uint32_t slot, const char *want)
{
    char text[64];
    struct place p;

    elastic_place_new(&e, slot, &p);
    assert_int_equal(p.host, slot / e.config.slots);
    (void)snprintf(text, sizeof(text), "%u/%u %u/%u %u/%u", p.rank, p.size,
                   p.local_rank, p.local_size, p.cross_rank, p.cross_size);
    assert_string_equal(text, want);
}

UNIT_TEST(a_new_process_has_a_place_in_its_environment)
{
    job_begin(3, 8, 2, 4);
    elastic_offer_slots(&e, 2, 2); /* numbers 0 to 15 have no process */
    leader_does("start 16, start 17");
    new_process_has(16, "0/2 0/2 0/1");
    new_process_has(17, "1/2 1/2 0/1");
    elastic_offer_slots(&e, 0, 3);
    leader_does("start 0, start 1");
    new_process_has(0, "2/4 0/3 0/2");
    new_process_has(1, "3/4 1/3 0/2");
    slot_fails(16, 7); /* its successor */
    leader_does("start 2");
    new_process_has(2, "0/4 2/3 0/2");
}

UNIT_TEST(members_have_the_places_of_their_slots)
{
    static const struct {
        uint32_t slots, n, members[8];
        const char *want;
    } rows[] = {
        {1, 1, {0}, "0 0/1 0/1"},
        {2, 4, {0, 1, 2, 3}, "0 0/2 0/2, 0 1/2 0/2, 1 0/2 1/2, 1 1/2 1/2"},
        /* ranks in another order than slots */
        {2, 4, {3, 0, 2, 1}, "1 1/2 1/2, 0 0/2 0/2, 1 0/2 1/2, 0 1/2 0/2"},
        /* workers without a member are no hosts */
        {2, 2, {4, 9}, "0 0/1 0/2, 1 0/1 1/2"},
        /* slot 0 is lost: 1 and 2 keep 1, and 2 has the free 0 */
        {3, 2, {1, 2}, "0 1/2 0/1, 0 0/2 0/1"},
        {4, 3, {0, 2, 3}, "0 0/3 0/1, 0 2/3 0/1, 0 1/3 0/1"},
        {4, 2, {2, 3}, "0 0/2 0/1, 0 1/2 0/1"},
        /* hosts of different size */
        {3, 4, {0, 1, 2, 5}, "0 0/3 0/2, 0 1/3 0/1, 0 2/3 0/1, 1 0/1 1/2"},
        {2, 3, {1, 2, 3}, "0 0/1 0/2, 1 0/2 1/2, 1 1/2 0/1"},
        {2, 0, {0}, ""},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CLEANUP(strbuf_release) struct strbuf out = {0};

        assert_string_equal(world_text(rows[i].members, rows[i].n, rows[i].slots, &out),
                            rows[i].want);
    }
}

UNIT_TEST(a_full_world_has_the_places_of_a_job_of_fixed_size)
{
    struct host hosts[W_MAX];
    struct place want[N_MAX], got[N_MAX];
    uint32_t members[N_MAX];
    struct err err = ERR_INIT;

    for (uint32_t i = 0; i < N_MAX; i++)
        members[i] = i;
    memset(hosts, 0, sizeof(hosts));
    for (uint32_t w = 0; w < W_MAX; w++)
        hosts[w].slots = S_MAX;
    for (uint32_t n = 1; n <= N_MAX; n++) {
        const struct hostlist list = {.v = hosts, .n = W_MAX};

        assert_int_equal(places_assign(&list, n, want, &err), 0);
        assert_int_equal(elastic_places(members, n, S_MAX, got, &err), 0);
        assert_memory_equal(got, want, n * sizeof(*got));
    }
}

static uint32_t next_random(uint64_t *state, uint32_t n)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)((*state >> 16) % n);
}

/* A random choice of the slots, in random order. Returns how many. */
static uint32_t make_members(uint64_t *random, uint32_t n_slots, uint32_t *members)
{
    uint32_t n = 0, rarity = 1 + next_random(random, 4);

    for (uint32_t i = 0; i < n_slots; i++)
        if (next_random(random, rarity) == 0)
            members[n++] = i;
    for (uint32_t i = n; i > 1; i--) {
        uint32_t k = next_random(random, i), last = members[i - 1];

        members[i - 1] = members[k];
        members[k] = last;
    }
    return n;
}

/* Against its definition, by counting. */
static void
check_place(const uint32_t *members, uint32_t n, uint32_t slots, const struct place *p)
{
    uint32_t worker = members[p->rank] / slots, i = members[p->rank] % slots;
    uint32_t local_size = 0, cross_rank = 0, cross_size = 0;
    const struct place *all = p - p->rank;
    bool is_on[W_MAX] = {false};
    uint32_t host = 0;
    struct err err = ERR_INIT;

    assert_int_equal(place_check(p, &err), 0);
    for (uint32_t r = 0; r < n; r++) {
        uint32_t w = members[r] / slots;

        is_on[w] = true;
        local_size += w == worker;
        if (all[r].local_rank == p->local_rank) {
            assert_true(w != worker || r == p->rank);
            cross_rank += w < worker;
            cross_size++;
        }
    }
    for (uint32_t w = 0; w < worker; w++)
        host += is_on[w];
    assert_int_equal(p->host, host);
    assert_int_equal(p->local_size, local_size);
    assert_int_equal(p->cross_rank, cross_rank);
    assert_int_equal(p->cross_size, cross_size);
    assert_true(i >= local_size || p->local_rank == i);
}

/* Of two members that lost their local ranks, the one of the lower slot has the lower. */
static void
check_order(const uint32_t *members, uint32_t n, uint32_t slots, const struct place *p)
{
    for (uint32_t a = 0; a < n; a++)
        for (uint32_t b = 0; b < n; b++)
            if (p[a].host == p[b].host && members[a] < members[b]
                && members[a] % slots >= p[a].local_size)
                assert_true(p[a].local_rank < p[b].local_rank);
}

UNIT_TEST(places_of_random_worlds_follow_the_definitions)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        uint64_t random = seed * 0x9e3779b97f4a7c15ull;
        uint32_t members[N_MAX], slots = 1 + next_random(&random, S_MAX),
                                 n_slots = slots * (1 + next_random(&random, W_MAX));
        uint32_t n = make_members(&random, n_slots, members);
        struct place p[N_MAX];
        struct err err = ERR_INIT;

        assert_int_equal(elastic_places(members, n, slots, p, &err), 0);
        for (uint32_t r = 0; r < n; r++)
            check_place(members, n, slots, &p[r]);
        check_order(members, n, slots, p);
    }
}

UNIT_TEST(places_without_memory_are_an_error)
{
    const uint32_t members[] = {0, 3};
    struct place p[2];
    int n_failed = 0;

    for (long after = 0; after < 10; after++) {
        struct err err = ERR_INIT;
        int rc;

        mem_fail_after(after);
        rc = elastic_places(members, 2, 2, p, &err);
        mem_fail_after(-1);
        if (rc == 0)
            break;
        n_failed++;
        assert_int_equal(rc, -ENOMEM);
        assert_string_equal(err.text, "out of memory for the places of 2 ranks");
    }
    assert_int_equal(n_failed, 2);
}

UNIT_MAIN(NULL, NULL)
