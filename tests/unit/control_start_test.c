/* SPDX-License-Identifier: Apache-2.0 */
/* The start of a large world, simulated: the real shape and the real bundles, the rules
 * of control/README.md, connections and messages counted on every rank.
 *
 * Time goes in rounds. In a round a rank serves one newcomer, or takes all that came in
 * the round before and sends on what follows from it, one frame up at most: a pump of
 * the real channel does no less. The walk: everybody joins; the first step, which all
 * negotiate, begun by the ranks at once or spread over some rounds; a rank dies.
 *
 * Asserted: connections and messages of the busiest rank grow as the logarithm of the
 * world. The figures are printed as a table. */
#include "tests/unit/unit.h"

#include "runtime/base/mem.h"
#include "runtime/control/bundle.h"
#include "runtime/control/shape.h"
#include "tests/unit/seeded.h"

enum {
    MAX_RANKS = 16384,
    FANOUT = 8,
    RANKS_OF_HOST = 8,
    HANDSHAKE = 3, /* messages: auth.h */
    MAX_ROUNDS = 500,
    WORK_BYTES = 40
};

struct node {
    uint32_t n_connections, n_messages; /* sent and received, all kinds */
    uint32_t n_up_frames;               /* to the parent */
    uint32_t next_child, end_child;     /* in `children`: not served yet */
    uint32_t joined_at, begins_at;
    struct strbuf in, out; /* items of this round, of the next */
    bool is_joined, has_answer, has_cause;
};

struct sim {
    uint32_t n, round, n_items_at_root, depth;
    uint64_t root_bytes;
    struct control_member *members;
    struct tree_shape shape;
    struct node *nodes;
    uint32_t *children; /* all, grouped by parent */
};

static void sim_open(struct sim *s, uint32_t n)
{
    uint32_t at = 0;

    *s = (struct sim){.n = n};
    s->members = mem_calloc(n, sizeof(*s->members));
    s->nodes = mem_calloc(n, sizeof(*s->nodes));
    s->children = mem_calloc(n, sizeof(*s->children));
    assert_true(s->members && s->nodes && s->children);
    for (uint32_t r = 0; r < n; r++) {
        (void)snprintf(s->members[r].host, sizeof(s->members[r].host), "node%u",
                       r / RANKS_OF_HOST);
        strbuf_init(&s->nodes[r].in, 1u << 24);
        strbuf_init(&s->nodes[r].out, 1u << 24);
    }
    assert_int_equal(shape_init(&s->shape, s->members, n, FANOUT), 0);
    for (uint32_t r = 1; r < n; r++)
        s->nodes[s->shape.parent[r]].end_child++;
    for (uint32_t r = 0; r < n; r++) {
        s->nodes[r].next_child = at;
        at += s->nodes[r].end_child;
        s->nodes[r].end_child = s->nodes[r].next_child;
    }
    for (uint32_t r = 1; r < n; r++) {
        struct node *p = &s->nodes[s->shape.parent[r]];
        uint32_t depth = shape_depth(&s->shape, r);

        s->children[p->end_child++] = r;
        s->depth = depth > s->depth ? depth : s->depth;
    }
}

static void sim_close(struct sim *s)
{
    for (uint32_t r = 0; r < s->n; r++) {
        strbuf_release(&s->nodes[r].in);
        strbuf_release(&s->nodes[r].out);
    }
    shape_release(&s->shape);
    mem_free(s->members);
    mem_free(s->nodes);
    mem_free(s->children);
}

static void rank_count_messages(struct sim *s, uint32_t rank, uint32_t n_messages)
{
    s->nodes[rank].n_messages += n_messages;
    s->nodes[s->shape.parent[rank]].n_messages += n_messages;
}

/* --- joining --- */

static bool join_round(struct sim *s)
{
    uint32_t n_waiting = 0;

    for (uint32_t r = 0; r < s->n; r++) {
        struct node *p = &s->nodes[r];
        uint32_t child;

        n_waiting += !p->is_joined;
        if (!p->is_joined || p->joined_at == s->round || p->next_child == p->end_child)
            continue;
        child = s->children[p->next_child++];
        s->nodes[child].is_joined = true;
        s->nodes[child].joined_at = s->round;
        s->nodes[child].n_connections++;
        p->n_connections++;
        rank_count_messages(s, child, HANDSHAKE + 2); /* JOIN, WELCOME */
    }
    return n_waiting > 0;
}

static void everybody_joins(struct sim *s)
{
    s->nodes[0].is_joined = true;
    s->round = 1;
    while (join_round(s))
        assert_true(++s->round < MAX_ROUNDS);
    for (uint32_t r = 1; r < s->n; r++)
        assert_true(s->nodes[r].joined_at > s->nodes[s->shape.parent[r]].joined_at);
}

/* --- up and down --- */

/* What the ranks sent in the last round has come. */
static void deliver_up(struct sim *s)
{
    for (uint32_t r = s->n; r-- > 1;) { /* a parent is lower: one hop a round */
        struct node *e = &s->nodes[r], *p = &s->nodes[s->shape.parent[r]];

        if (e->out.n == 0)
            continue;
        strbuf_add(&p->in, e->out.p, e->out.n);
        strbuf_clear(&e->out);
        e->n_up_frames++;
        rank_count_messages(s, r, 1);
    }
}

static void take_in(struct sim *s, uint32_t r)
{
    struct node *e = &s->nodes[r];
    struct wire_reader in = {.p = (const uint8_t *)strbuf_str(&e->in), .n = e->in.n};
    struct up_item item;
    int k;

    if (r > 0) {
        strbuf_add(&e->out, strbuf_str(&e->in), e->in.n);
    } else {
        s->root_bytes += e->in.n;
        while ((k = bundle_next(&in, &item)) > 0)
            s->n_items_at_root++;
        assert_int_equal(k, 0);
    }
    strbuf_clear(&e->in);
}

static void rank_send_up(struct sim *s, uint32_t r, enum up_kind kind, uint32_t origin)
{
    static const uint8_t work[WORK_BYTES];
    const struct up_item item = {kind, origin, work, sizeof(work)};

    if (r == 0)
        s->n_items_at_root++;
    else
        bundle_put(&s->nodes[r].out, &item);
}

static void up_round(struct sim *s, uint32_t start)
{
    deliver_up(s);
    for (uint32_t r = 0; r < s->n; r++) {
        take_in(s, r);
        if (s->nodes[r].begins_at == s->round - start)
            rank_send_up(s, r, UP_WORK, r);
    }
    s->round++;
}

/* One frame to each child, from level to level. `without`: it and what is below it do
 * not hear it from above. */
static void pass_down(struct sim *s, uint32_t without)
{
    for (uint32_t r = 1; r < s->n; r++)
        if (r != without)
            rank_count_messages(s, r, 1);
}

static uint32_t first_step(struct sim *s, uint32_t spread, uint64_t seed)
{
    struct seeded rnd = {seed};
    uint32_t start = s->round;

    for (uint32_t r = 0; r < s->n; r++)
        s->nodes[r].begins_at = spread > 0 ? seeded_below(&rnd, spread) : 0;
    while (s->n_items_at_root < s->n) {
        assert_true(s->round < start + MAX_ROUNDS);
        up_round(s, start);
    }
    assert_int_equal(s->n_items_at_root, s->n);
    pass_down(s, 0); /* the answer */
    return s->round - start;
}

/* A rank with others below it dies: LOST to rank 0, ABORT to all. */
static void one_abort(struct sim *s, uint32_t dead)
{
    uint32_t start = s->round, parent = s->shape.parent[dead];

    s->n_items_at_root = 0;
    rank_send_up(s, parent, UP_LOST, dead);
    while (s->n_items_at_root == 0) {
        assert_true(s->round < start + MAX_ROUNDS);
        s->round += MAX_ROUNDS; /* no more work */
        up_round(s, 0);
        s->round -= MAX_ROUNDS;
    }
    pass_down(s, dead); /* those right below it settle it themselves */
}

/* --- the table --- */

struct figures {
    uint32_t depth, connections, messages, up_frames, rounds;
};

static struct figures start_simulate(uint32_t n, uint32_t spread)
{
    struct figures f = {0};
    struct sim s;

    sim_open(&s, n);
    everybody_joins(&s);
    f.rounds = s.round;
    (void)first_step(&s, spread, n);
    one_abort(&s, n > 8 ? 8 : n - 1);
    f.depth = s.depth;
    for (uint32_t r = 0; r < n; r++) {
        const struct node *e = &s.nodes[r];

        f.connections =
            e->n_connections > f.connections ? e->n_connections : f.connections;
        f.messages = e->n_messages > f.messages ? e->n_messages : f.messages;
        f.up_frames = e->n_up_frames > f.up_frames ? e->n_up_frames : f.up_frames;
    }
    sim_close(&s);
    return f;
}

static uint32_t log_ceil(uint32_t base, uint32_t n)
{
    uint32_t k = 0;

    for (uint64_t p = 1; p < n; p *= base)
        k++;
    return k;
}

/* A neighbour sends as many frames up as there are rounds in which something reaches
 * it, and besides the handshake, an answer, a loss and a cause. */
static void figures_check(uint32_t n, uint32_t spread, const struct figures *f)
{
    uint32_t levels = log_ceil(FANOUT, (n + RANKS_OF_HOST - 1) / RANKS_OF_HOST)
                      + log_ceil(FANOUT, RANKS_OF_HOST) + 2;

    assert_true(f->depth <= levels);
    assert_true(f->connections <= 2 * FANOUT + 1);
    assert_true(f->up_frames <= levels + 1 + spread);
    assert_true(f->messages
                <= (2 * FANOUT + 1) * (HANDSHAKE + 2 + levels + 1 + spread + 2));
    assert_true(f->rounds <= levels * 2 * FANOUT + 1);
}

static void figures_print(uint32_t spread)
{
    static const uint32_t sizes[] = {2, 8, 64, 256, 1024, 4096, MAX_RANKS};

    (void)printf("#  ranks  depth  connections  messages  of them up, an edge  "
                 "rounds to join    (a star: connections, messages)\n");
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        uint32_t n = sizes[i];
        struct figures f = start_simulate(n, spread);

        (void)printf("# %6u %6u %12u %9u %20u %15u    (%u, %u)\n", n, f.depth,
                     f.connections, f.messages, f.up_frames, f.rounds, n - 1,
                     (n - 1) * (HANDSHAKE + 2 + 3));
        figures_check(n, spread, &f);
    }
}

UNIT_TEST(the_busiest_rank_has_work_of_the_logarithm_of_the_world)
{
    figures_print(0);
}

UNIT_TEST(requests_that_come_spread_share_frames_too)
{
    figures_print(16);
}

UNIT_MAIN(NULL, NULL)
