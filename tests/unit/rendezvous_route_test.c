/* SPDX-License-Identifier: Apache-2.0 */
/* The tree of a large world, simulated: members join in random order, reach their relays
 * in random order, die and return. No socket; a run is its seed. */
#include "tests/unit/unit.h"

#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/rendezvous/world.h"

#define SIZE        4096u
#define DEPTH       6u  /* relays above a member: 8 (1 + 3 + .. + 3^6) >= SIZE */
#define DEPTH_CHURN 12u /* while members die and return */

enum where { OUT, ON_WAY, IN, CUT };

/* The members as they are; the world has what the server knows of them. */
struct sim {
    struct rdv_world w;
    uint64_t seed;
    enum where at[SIZE];
    uint32_t parent[SIZE]; /* of those ON_WAY and IN */
    uint32_t pass[SIZE];
    uint32_t n_in, n_kept; /* n_kept: members that the server had to keep */
};

static uint32_t sim_random(struct sim *s, uint32_t below)
{
    s->seed = s->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(s->seed >> 33) % below;
}

static void sim_init(struct sim *s, uint64_t seed)
{
    memset(s, 0, sizeof(*s));
    s->seed = seed;
    assert_int_equal(rdv_world_init(&s->w, SIZE, NULL), 0);
}

static void sim_arrive(struct sim *s, uint32_t i)
{
    if (s->w.v[i].pass == s->pass[i])
        rdv_world_join(&s->w, i, s);
    s->at[i] = IN;
    s->n_in++;
}

static void sim_join(struct sim *s, uint32_t i)
{
    const struct rdv_join join = {
        .rank = i,
        .size = SIZE,
        .round = s->w.round,
        .port = 1,
        .lost = s->at[i] == CUT ? s->parent[i] : RDV_NO_PLACE,
        .lost_port = 1,
    };
    void *old;

    s->pass[i] = rdv_world_admit(&s->w, i, &old);
    s->parent[i] = route_enter(&s->w.route, i, &join, "10.0.0.1", s->w.round);
    s->at[i] = ON_WAY;
    if (s->parent[i] == ROUTE_SERVER)
        sim_arrive(s, i);
}

/* Its connection is closed: so are those of all below, which will come back. */
static void sim_close(struct sim *s, uint32_t i, enum where next)
{
    if (s->at[i] == IN) {
        s->n_in--;
        rdv_world_leave(&s->w, i, s);
    }
    s->at[i] = next;
    for (uint32_t k = 0; k < SIZE; k++)
        if (s->parent[k] == i && (s->at[k] == IN || s->at[k] == ON_WAY))
            sim_close(s, k, CUT);
}

static void sim_step(struct sim *s, uint32_t i)
{
    switch (s->at[i]) {
    case OUT:
    case CUT:
        sim_join(s, i);
        return;
    case ON_WAY: {
        enum where parent = s->at[s->parent[i]];

        if (parent == IN)
            sim_arrive(s, i);
        else if (parent != ON_WAY)
            s->at[i] = CUT;
        return;
    }
    case IN:
        return;
    }
}

/* No process has more connections than allowed, nobody waits in a circle, and the tree is
 * flat. */
static void sim_check(const struct sim *s, uint32_t depth_max)
{
    const struct rdv_route *r = &s->w.route;
    static uint32_t n_below[SIZE];
    uint32_t n_direct = 0, n_kept = 0;

    memset(n_below, 0, sizeof(n_below));
    for (uint32_t i = 0; i < SIZE; i++) {
        uint32_t depth = 0, p;

        for (p = r->v[i].parent; p < SIZE; p = r->v[p].parent)
            assert_true(++depth <= depth_max);
        if (r->v[i].parent < SIZE)
            n_below[r->v[i].parent]++;
        n_direct += r->v[i].parent == ROUTE_SERVER;
        n_kept += r->v[i].parent == ROUTE_SERVER && r->v[i].n_moves >= RDV_MOVES_MAX;
    }
    for (uint32_t i = 0; i < SIZE; i++) {
        assert_int_equal(n_below[i], r->v[i].n_below);
        assert_true(n_below[i] <= RDV_FANOUT);
    }
    assert_int_equal(n_direct, r->n_direct);
    assert_true(n_direct <= RDV_FANOUT_SERVER + n_kept);
}

static void sim_run(struct sim *s, uint32_t n_deaths)
{
    uint32_t n_steps = 0;

    while (s->n_in < SIZE || n_deaths > 0) {
        uint32_t i = sim_random(s, SIZE);

        if (n_deaths > 0 && s->n_in > SIZE / 2 && sim_random(s, 64) == 0) {
            sim_close(s, i, OUT);
            n_deaths--;
        }
        sim_step(s, sim_random(s, SIZE));
        if (++n_steps % 4096 == 0)
            sim_check(s, DEPTH_CHURN);
        assert_true(n_steps < 100 * SIZE);
    }
}

static void sim_release(struct sim *s)
{
    rdv_world_release(&s->w);
}

static void sim_put_all(struct sim *s, uint64_t now_ns)
{
    for (uint32_t i = 0; i < SIZE; i++) {
        const struct rdv_put put = {i, s->w.round, 1000, NULL, 0};

        if (s->at[i] == IN)
            assert_int_equal(rdv_world_put(&s->w, i, &put, now_ns, NULL), 0);
    }
}

static void sim_finish(struct sim *s)
{
    sim_put_all(s, 0);
    assert_true(rdv_world_is_full(&s->w));
    rdv_msg_unref(rdv_world_finish(&s->w));
}

UNIT_TEST(a_tree_of_4096_has_6_relays_above_a_member_at_most)
{
    static struct sim s;

    for (uint64_t seed = 0; seed < 5; seed++) {
        sim_init(&s, seed);
        sim_run(&s, 0);
        sim_check(&s, DEPTH); /* 8 (1 + 3 + .. + 3^6) members */
        sim_finish(&s);
        sim_release(&s);
    }
}

UNIT_TEST(members_die_and_return_and_all_are_there_in_the_end)
{
    static struct sim s;

    for (uint64_t seed = 0; seed < 5; seed++) {
        sim_init(&s, seed);
        sim_run(&s, 200);
        sim_check(&s, DEPTH_CHURN);
        sim_finish(&s);
        sim_release(&s);
    }
}

/* The members of the next formation begin a tree of their own, while those of the last
 * one are still connected. */
UNIT_TEST(the_next_formation_begins_a_new_tree)
{
    static struct sim s;

    sim_init(&s, 1);
    sim_run(&s, 0);
    sim_finish(&s);
    for (uint32_t i = 0; i < SIZE; i++) { /* nobody has closed yet */
        uint32_t before = s.at[i];

        assert_int_equal(before, IN);
        s.at[i] = OUT;
        s.n_in--;
    }
    sim_run(&s, 0);
    sim_check(&s, DEPTH);
    sim_finish(&s);
    sim_release(&s);
}

UNIT_TEST(a_deadline_names_the_dead_of_4096_and_not_those_who_gave_up)
{
    static const uint32_t dead[] = {7, 300, 301, 4000};
    static struct sim s;
    char text[400];

    sim_init(&s, 3);
    sim_run(&s, 0);
    for (size_t i = 0; i < ARRAY_LEN(dead); i++)
        sim_close(&s, dead[i], OUT);
    for (uint32_t n = 0; n < 20 * SIZE; n++) { /* those below them come back */
        uint32_t i = sim_random(&s, SIZE);

        if (s.at[i] != OUT)
            sim_step(&s, i);
    }
    assert_int_equal(s.n_in, SIZE - ARRAY_LEN(dead));
    sim_put_all(&s, 0);
    for (uint32_t i = 1; i < 10; i++) {
        (void)snprintf(text, sizeof(text), "%s", rdv_world_blame(&s.w));
        assert_string_equal(text, "ranks 7, 300, 301, 4000 of 4096; had connected and "
                                  "was lost: 7, 300, 301, 4000");
        rdv_world_withdraw(&s.w, i); /* it gives up, and its relay's members move */
        sim_close(&s, i, OUT);
    }
    sim_release(&s);
}

UNIT_TEST(the_blame_is_written_anew_once_a_missing_rank_has_come)
{
    struct rdv_world w;
    const struct rdv_put put[] = {{0, 0, 9, NULL, 0}, {1, 0, 9, NULL, 0}};
    void *old;

    assert_int_equal(rdv_world_init(&w, 3, NULL), 0);
    for (uint32_t i = 0; i < 2; i++) {
        (void)rdv_world_admit(&w, i, &old);
        rdv_world_join(&w, i, &w);
    }
    assert_int_equal(rdv_world_put(&w, 0, &put[0], 0, NULL), 0);
    assert_string_equal(rdv_world_blame(&w), "ranks 1, 2 of 3; connected but late: 1");
    rdv_world_withdraw(&w, 0);
    assert_int_equal(rdv_world_put(&w, 1, &put[1], 0, NULL), 0);
    assert_string_equal(rdv_world_blame(&w), "ranks 0, 2 of 3; connected but late: 0");
    rdv_world_release(&w);
}

/* A relay that hangs keeps back what comes from behind it: it is the one to name. */
UNIT_TEST(members_behind_a_late_relay_are_counted_not_named)
{
    static struct sim s;
    uint32_t relay = 0, n_behind = 0;
    char text[400], want[100];

    sim_init(&s, 4);
    sim_run(&s, 0);
    while (s.parent[relay] != ROUTE_SERVER)
        relay++;
    for (uint32_t i = 0; i < SIZE; i++) {
        const struct rdv_put put = {i, 0, 1000, NULL, 0};
        uint32_t p = i;

        while (p < SIZE && p != relay)
            p = s.parent[p];
        if (p == relay)
            n_behind++;
        else
            assert_int_equal(rdv_world_put(&s.w, i, &put, 0, NULL), 0);
    }
    rdv_world_missing(&s.w, text, sizeof(text));
    (void)snprintf(want, sizeof(want),
                   "rank %u of 4096; connected but late: %u; %u more connect through "
                   "these",
                   relay, relay, n_behind - 1);
    assert_string_equal(text, want);
    assert_true(n_behind > 300);
    sim_release(&s);
}

UNIT_TEST(a_relay_must_be_reachable)
{
    static const struct {
        const char *relay, *member;
        uint16_t port;
        bool can;
    } t[] = {
        {"10.0.0.1", "10.0.0.2", 1, true},   {"10.0.0.1", "127.0.0.1", 1, true},
        {"127.0.0.1", "127.0.0.1", 1, true}, {"127.0.0.1", "10.0.0.2", 1, false},
        {"::1", "fd00::2", 1, false},        {"fe80::1", "fe80::2", 1, false},
        {"10.0.0.1", "10.0.0.2", 0, false},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct rdv_route r;
        struct rdv_join join = {.size = 20, .port = t[i].port, .lost = RDV_NO_PLACE};

        assert_int_equal(route_init(&r, 20), 0);
        for (uint32_t k = 0; k < RDV_FANOUT_SERVER; k++)
            assert_int_equal(route_enter(&r, k, &join, t[i].relay, 0), ROUTE_SERVER);
        assert_int_equal(route_enter(&r, 9, &join, t[i].member, 0),
                         t[i].can ? 0 : ROUTE_SERVER);
        route_release(&r);
    }
}

UNIT_TEST(a_relay_that_was_lost_is_not_given_again)
{
    struct rdv_route r;
    struct rdv_join join = {.size = 20, .port = 5, .lost = RDV_NO_PLACE};

    assert_int_equal(route_init(&r, 20), 0);
    for (uint32_t k = 0; k < RDV_FANOUT_SERVER; k++)
        (void)route_enter(&r, k, &join, "10.0.0.1", 0);
    assert_int_equal(route_enter(&r, 9, &join, "10.0.0.1", 0), 0);
    join.lost = 0;
    join.lost_port = 4; /* of an earlier process of that rank */
    assert_int_equal(route_enter(&r, 9, &join, "10.0.0.1", 0), 0);
    join.lost_port = 5;
    assert_int_equal(route_enter(&r, 9, &join, "10.0.0.1", 0), 1);
    join.lost = 1;
    assert_int_equal(route_enter(&r, 9, &join, "10.0.0.1", 0), ROUTE_SERVER);
    assert_int_equal(route_parent(&r, 9), ROUTE_SERVER);
    join.lost = RDV_NO_PLACE; /* another process of rank 9 */
    assert_int_equal(route_enter(&r, 9, &join, "10.0.0.1", 0), 2);
    route_release(&r);
}

UNIT_MAIN(NULL, NULL)
