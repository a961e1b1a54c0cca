/* SPDX-License-Identifier: Apache-2.0 */
/* The shape of the control tree: tables of small worlds, properties of random ones. */
#include "tests/unit/unit.h"

#include "runtime/base/mem.h"
#include "runtime/control/shape.h"
#include "tests/unit/seeded.h"
#include "tests/unit/torture.h"

enum { MAX_RANKS = 16384 };

/* hosts: one letter a rank. parents: one number a rank but rank 0. */
struct row {
    uint32_t fanout;
    const char *hosts;
    uint32_t parents[24];
};

static const struct row rows[] = {
    {8, "a", {0}},
    {8, "aa", {0}},
    {8, "ab", {0}},
    /* up to 1 + K ranks on one host are a star */
    {8, "aaaaaaaaa", {0, 0, 0, 0, 0, 0, 0, 0}},
    {8, "aaaaaaaaaaa", {0, 0, 0, 0, 0, 0, 0, 0, 1, 1}},
    {2, "aaaaaaaaaaaaaaa", {0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6}},
    /* one connection a host crosses the network */
    {2, "aabbcc", {0, 0, 2, 0, 4}},
    {2, "aaabbbcccddd", {0, 0, 0, 3, 3, 0, 6, 6, 3, 9, 9}},
    /* every host apart */
    {2, "abcdefg", {0, 0, 1, 1, 2, 2}},
    /* dealt out in turn */
    {2, "abababab", {0, 0, 1, 0, 1, 2, 3}},
    /* hosts of unequal size, rank 0 not alone */
    {3, "aaaaabbcddd", {0, 0, 0, 1, 0, 5, 0, 0, 8, 8}},
};

static struct control_member *members_of(const char *hosts)
{
    size_t n = strlen(hosts);
    struct control_member *m = mem_calloc(n, sizeof(*m));

    assert_non_null(m);
    for (size_t i = 0; i < n; i++)
        (void)snprintf(m[i].host, sizeof(m[i].host), "host-%c", hosts[i]);
    return m;
}

UNIT_TEST(small_worlds_have_this_shape)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTOFREE struct control_member *m = members_of(rows[i].hosts);
        uint32_t n = (uint32_t)strlen(rows[i].hosts);
        CLEANUP(shape_release) struct tree_shape s;

        assert_int_equal(shape_init(&s, m, n, rows[i].fanout), 0);
        assert_int_equal(s.parent[0], SHAPE_NONE);
        for (uint32_t r = 1; r < n; r++)
            if (s.parent[r] != rows[i].parents[r - 1])
                fail_msg("\"%s\" by %u: rank %u is below rank %u, not %u",
                         rows[i].hosts, rows[i].fanout, r, s.parent[r],
                         rows[i].parents[r - 1]);
    }
}

UNIT_TEST(the_way_to_a_rank_leads_up_or_down)
{
    AUTOFREE struct control_member *m = members_of("aaaaaaaaaaaaaaa");
    uint32_t below[4];
    CLEANUP(shape_release) struct tree_shape s;

    assert_int_equal(shape_init(&s, m, 15, 2), 0);
    assert_int_equal(shape_next(&s, 0, 14), 2);
    assert_int_equal(shape_next(&s, 2, 14), 6);
    assert_int_equal(shape_next(&s, 6, 14), 14);
    assert_int_equal(shape_next(&s, 14, 0), 6);
    assert_int_equal(shape_next(&s, 5, 14), 2);
    assert_int_equal(shape_next(&s, 3, 4), 1);
    assert_int_equal(shape_next(&s, 3, 3), SHAPE_NONE);
    assert_true(shape_is_under(&s, 14, 2) && shape_is_under(&s, 2, 2));
    assert_true(shape_is_under(&s, 14, 0));
    assert_false(shape_is_under(&s, 14, 1));
    assert_false(shape_is_under(&s, 1, 3));
    assert_false(shape_is_under(&s, 15, 0));
    assert_false(shape_is_under(&s, UINT32_MAX, 2));
    assert_int_equal(shape_depth(&s, 0), 0);
    assert_int_equal(shape_depth(&s, 14), 3);
    assert_int_equal(shape_children(&s, 2, below, 4), 2);
    assert_int_equal(below[0], 5);
    assert_int_equal(below[1], 6);
    assert_int_equal(shape_children(&s, 2, below, 1), 2);
    assert_int_equal(shape_children(&s, 14, below, 4), 0);
}

/* --- properties --- */

static uint32_t log_ceil(uint32_t base, uint32_t n)
{
    uint32_t k = 0;

    for (uint64_t p = 1; p < n; p *= base)
        k++;
    return k;
}

static struct control_member world[MAX_RANKS];
static uint32_t n_on_host[MAX_RANKS];

/* Some hosts, ranks on them in blocks, in turn or anyhow. How many hosts have ranks. */
static uint32_t lay_out(struct seeded *rnd, uint32_t n, uint32_t *ret_most)
{
    uint32_t hosts = 1 + seeded_below(rnd, seeded_below(rnd, 2) ? n : 40);
    uint32_t how = seeded_below(rnd, 3), block = (n + hosts - 1) / hosts, used = 0;

    memset(n_on_host, 0, sizeof(n_on_host));
    *ret_most = 0;
    for (uint32_t r = 0; r < n; r++) {
        uint32_t h = how == 0   ? r / block
                     : how == 1 ? r % hosts
                                : seeded_below(rnd, hosts);

        (void)snprintf(world[r].host, sizeof(world[r].host), "worker-%u.job", h);
        used += n_on_host[h]++ == 0;
        *ret_most = n_on_host[h] > *ret_most ? n_on_host[h] : *ret_most;
    }
    return used;
}

static void check_world(uint32_t n, uint32_t fanout, uint32_t hosts, uint32_t most)
{
    static uint32_t n_below[MAX_RANKS], n_across[MAX_RANKS];
    uint32_t deepest = 0, crossing = 0;
    CLEANUP(shape_release) struct tree_shape s;

    memset(n_below, 0, sizeof(n_below));
    memset(n_across, 0, sizeof(n_across));
    assert_int_equal(shape_init(&s, world, n, fanout), 0);
    assert_int_equal(s.parent[0], SHAPE_NONE);
    for (uint32_t r = 1; r < n; r++) {
        uint32_t p = s.parent[r], depth;

        assert_true(p < r); /* one root, no cycle */
        n_below[p]++;
        if (strcmp(world[p].host, world[r].host) != 0) {
            crossing++;
            n_across[p]++;
        }
        depth = shape_depth(&s, r);
        deepest = depth > deepest ? depth : deepest;
    }
    for (uint32_t r = 0; r < n; r++) {
        assert_true(n_across[r] <= fanout);
        assert_true(n_below[r] - n_across[r] <= fanout);
    }
    assert_int_equal(crossing, hosts - 1);
    assert_true(deepest <= log_ceil(fanout, hosts) + log_ceil(fanout, most) + 2);
}

UNIT_TEST(any_world_is_a_flat_tree)
{
    static const uint32_t sizes[] = {2, 3, 7, 17, 64, 300, 1000, 4096, MAX_RANKS};
    struct seeded rnd = {4};
    uint32_t hosts, most;

    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        for (int k = 0; k < (sizes[i] < 2000 ? 30 : 3); k++) {
            uint32_t fanout = 2 + seeded_below(&rnd, 9);

            hosts = lay_out(&rnd, sizes[i], &most);
            check_world(sizes[i], fanout, hosts, most);
        }
    }
}

/* 64 ranks on each of 64 hosts, dealt out in blocks and in turn, by the default fan-out. */
UNIT_TEST(a_launch_of_4096_tasks_has_at_most_17_connections_a_rank)
{
    enum { HOSTS = 64, RANKS = 4096, FANOUT = 8 };

    for (int in_turn = 0; in_turn < 2; in_turn++) {
        CLEANUP(shape_release) struct tree_shape s;
        uint32_t most = 0, sum = 0;

        for (uint32_t r = 0; r < RANKS; r++)
            (void)snprintf(world[r].host, sizeof(world[r].host), "node%u",
                           in_turn ? r % HOSTS : r / (RANKS / HOSTS));
        assert_int_equal(shape_init(&s, world, RANKS, FANOUT), 0);
        for (uint32_t r = 0; r < RANKS; r++) {
            uint32_t n = shape_children(&s, r, NULL, 0) + (r > 0);

            sum += n;
            most = n > most ? n : most;
        }
        assert_int_equal(sum, 2 * (RANKS - 1)); /* each has two ends */
        assert_int_equal(most, 2 * FANOUT + 1);
    }
}

/* next() leads from anywhere to anywhere, without a detour. */
UNIT_TEST(every_rank_is_reached)
{
    struct seeded rnd = {9};
    uint32_t most;
    CLEANUP(shape_release) struct tree_shape s;

    (void)lay_out(&rnd, 200, &most);
    assert_int_equal(shape_init(&s, world, 200, 3), 0);
    for (int k = 0; k < 5000; k++) {
        uint32_t from = seeded_below(&rnd, 200), to = seeded_below(&rnd, 200);
        uint32_t limit = shape_depth(&s, from) + shape_depth(&s, to), steps = 0;

        for (uint32_t at = from; at != to; at = shape_next(&s, at, to)) {
            uint32_t next = shape_next(&s, at, to);

            assert_true(s.parent[next] == at || s.parent[at] == next);
            assert_true(++steps <= limit);
        }
    }
}

static int make_and_drop(void *arg)
{
    struct tree_shape s;
    int rc = shape_init(&s, arg, 11, 2);

    if (rc == 0)
        shape_release(&s);
    return rc;
}

UNIT_TEST(memory_may_be_out)
{
    AUTOFREE struct control_member *m = members_of("aabbccddeef");

    torture(make_and_drop, m);
}

UNIT_MAIN(NULL, NULL)
