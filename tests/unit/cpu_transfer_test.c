/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers between the members of many pairs, driven together by one thread a rank: over
 * shared memory, TCP and both; in rings and in random graphs; where a peer dies or does
 * nothing. */
#include <sys/syscall.h>

#include "runtime/backend/cpu/cpu.h"
#include "tests/unit/seeded.h"
#include "tests/unit/unit.h"

#include "tests/unit/cpu_world.h"

enum { LOADS = 24, BIG = (5 << 20) / FEWER }; /* bytes; more than slots hold */

/* One transfer as this rank sees it. */
struct load {
    uint32_t src, dst;
    uint64_t n; /* bytes */
    uint8_t *data;
    struct batch_item item;
    struct batch batch;
    struct backend *b;
    uint64_t ticket;
    bool is_posted, is_done;
};

struct pairs {
    struct backend *v[WORLD_MAX][WORLD_MAX];
};

static int pairs_open(struct rank *r, struct pairs *p, struct err *err)
{
    int rc = 0;
    for (uint32_t b = 1; b < r->size; b++)
        for (uint32_t a = 0; a < b && rc == 0; a++) {
            const uint32_t ranks[] = {a, b};
            struct backend *made;
            rc = r->b->ops->subset(r->b, ranks, 2, r->env.deadline_ns, &made, err);
            p->v[a][b] = p->v[b][a] = rc < 0 ? NULL : made;
        }
    return rc;
}

static void pairs_close(struct rank *r, struct pairs *p)
{
    for (uint32_t b = 1; b < r->size; b++)
        for (uint32_t a = 0; a < b; a++)
            backend_cpu.close(p->v[a][b]);
}

static uint8_t byte_of(const struct load *l, uint64_t i, uint32_t number)
{
    return (uint8_t)((i * 31 >> 3) + i + 7 * l->src + 3 * l->dst + number);
}

static void
load_make(const struct rank *r, const struct pairs *p, struct load *l, uint32_t number)
{
    bool sends = l->src == r->rank;
    l->data = malloc(l->n + 1);
    if (!l->data)
        abort();
    for (uint64_t i = 0; i < l->n; i++)
        l->data[i] = sends ? byte_of(l, i, number) : 0;
    l->data[l->n] = 0x5a;
    l->item = (struct batch_item){
        .in = sends ? l->data : NULL, .out = sends ? NULL : l->data, .count = l->n};
    l->batch = (struct batch){.coll = COLL_SENDRECV,
                              .dtype = DT_U8,
                              .root = l->src < l->dst ? 0 : 1,
                              .prescale = 1,
                              .postscale = 1,
                              .items = &l->item,
                              .n_items = 1};
    l->b = p->v[l->src][l->dst];
}

static int load_check(struct rank *r, const struct load *l, uint32_t number)
{
    for (uint64_t i = 0; i < l->n; i++)
        if (l->data[i] != byte_of(l, i, number))
            return SAY(r, "transfer %u, %u -> %u, %llu bytes: byte %llu", number,
                       l->src, l->dst, (unsigned long long)l->n, (unsigned long long)i);
    return l->data[l->n] == 0x5a ? 0
                                 : SAY(r, "transfer %u: wrote past its end", number);
}

static bool pair_is_free(const struct load *l, uint32_t at)
{
    for (uint32_t i = 0; i < at; i++)
        if (l[i].b == l[at].b && !l[i].is_done)
            return false;
    return true;
}

/* Posts and polls each of this rank's loads once. Returns how many are not done. */
static int loads_poll(struct load *l, uint32_t n, struct err *err)
{
    int n_left = 0, rc = 0;
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        uint64_t done;
        if (!l[i].b || l[i].is_done)
            continue;
        n_left++;
        if (!l[i].is_posted && pair_is_free(l, i)) {
            rc = backend_cpu.post(l[i].b, &l[i].batch, &l[i].ticket, err);
            l[i].is_posted = true;
        }
        if (rc < 0 || !l[i].is_posted)
            continue;
        rc = backend_cpu.poll(l[i].b, &done, err);
        l[i].is_done = rc == 0 && done >= l[i].ticket;
    }
    return rc < 0 ? rc : n_left;
}

static int loads_await(const struct load *l, uint32_t n, struct err *err)
{
    struct backend *v[LOADS];
    uint32_t m = 0;
    for (uint32_t i = 0; i < n; i++)
        if (l[i].b && l[i].is_posted && !l[i].is_done)
            v[m++] = l[i].b;
    return m == 0 ? 0 : backend_cpu.await(v, m, err);
}

/* Until all are done or one fails. */
static int loads_run(struct rank *r, struct load *l, uint32_t n, struct err *err)
{
    int rc;
    while ((rc = loads_poll(l, n, err)) > 0) {
        rc = loads_await(l, n, err);
        if (rc < 0)
            return rc;
        if (clock_now_ns() > r->env.deadline_ns)
            return err_set(err, -ETIMEDOUT, "not done before the deadline");
    }
    return rc;
}

/* The same on all ranks, apart from order: each rank goes through those of its own. */
static int loads_carry(struct rank *r, struct load *l, uint32_t n)
{
    struct pairs p = {0};
    struct err err = ERR_INIT;
    int rc = pairs_open(r, &p, &err);
    for (uint32_t i = 0; i < n && rc == 0; i++)
        if (l[i].src == r->rank || l[i].dst == r->rank)
            load_make(r, &p, &l[i], i);
    rc = rc < 0 ? rc : loads_run(r, l, n, &err);
    if (rc < 0)
        rc = SAY(r, "%s", err.text);
    for (uint32_t i = 0; i < n && rc == 0; i++)
        rc = l[i].b ? load_check(r, &l[i], i) : 0;
    for (uint32_t i = 0; i < n; i++)
        free(l[i].data);
    world_meet(r, r->size); /* else the first to leave is taken for a lost rank */
    pairs_close(r, &p);
    return rc;
}

/* --- rings and graphs --- */

/* Every rank sends to the next one first and would wait for ever if that waited. */
static int body_ring(struct rank *r)
{
    struct load l[LOADS] = {0};
    for (uint32_t i = 0; i < r->size; i++)
        l[i] = (struct load){.src = i, .dst = (i + 1) % r->size, .n = BIG + i};
    return loads_carry(r, l, r->size);
}

UNIT_TEST(a_ring_needs_no_order_whatever_the_size)
{
    world_expect(body_ring, 2, false, NULL);
    world_expect(body_ring, 3, false, NULL);
    world_expect(body_ring, 5, false, NULL);
    world_expect(body_ring, 4, true, NULL);
    world_expect(body_ring, 5, false, "abbac");
}

static int body_random(struct rank *r)
{
    static const uint64_t sizes[] = {0, 1, 4095, 65536, (1u << 20) + 1};
    struct load l[LOADS] = {0};
    struct seeded s = {*(const uint64_t *)r->arg};
    uint32_t n = 1 + seeded_below(&s, LOADS);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t src = seeded_below(&s, r->size);
        l[i].src = src;
        l[i].dst = (src + 1 + seeded_below(&s, r->size - 1)) % r->size;
        l[i].n = sizes[seeded_below(&s, ARRAY_LEN(sizes))];
    }
    return loads_carry(r, l, n);
}

UNIT_TEST(any_graph_of_transfers_comes_to_its_end)
{
    for (uint64_t seed = 1; seed <= 40 / FEWER; seed++) {
        struct world w = {.body = body_random, .timeout_s = 60, .arg = &seed};
        for (uint32_t i = 0; i < WORLD_MAX && seed % 5 == 0; i++)
            w.checks[i] = DATA_CRC;
        switch (seed % 4) {
        case 0:
            world_check(&w, 3, false, NULL);
            break;
        case 1:
            world_check(&w, 5, true, NULL);
            break;
        case 2:
            world_check(&w, 4, false, "aabb");
            break;
        default:
            world_check(&w, 5, false, "abcab");
        }
    }
}

/* --- peers that die or do nothing --- */

/* The ranks of `idle` do not take part, or only until they end; the other ones fail. */
static int
loads_fail(struct rank *r, struct load *l, uint32_t n, uint32_t idle, bool dies)
{
    const bool is_idle = idle >> r->rank & 1;
    struct pairs p = {0};
    struct err err = ERR_INIT;
    int rc = pairs_open(r, &p, &err);
    for (uint32_t i = 0; i < n && rc == 0; i++)
        if (l[i].src == r->rank || l[i].dst == r->rank)
            load_make(r, &p, &l[i], i);
    for (int k = 0; k < 4 && is_idle && dies; k++)
        (void)loads_poll(l, n, &err);
    if (is_idle && dies)
        raise(SIGKILL);
    if (rc == 0 && !is_idle)
        rc = loads_run(r, l, n, &err);
    (void)SAY(r, "%s", err.text);
    world_meet(r, dies ? 2 : 3);
    for (uint32_t i = 0; i < n; i++)
        free(l[i].data);
    pairs_close(r, &p);
    return rc < 0 || is_idle ? 0 : SAY(r, "no failure: %s", err.text);
}

/* Ranks 0 and 1 exchange much with each other and with rank 2, which dies in it. */
static int body_dying_peer(struct rank *r)
{
    struct load l[] = {{.src = 0, .dst = 1, .n = 8 * BIG},
                       {.src = 0, .dst = 2, .n = 8 * BIG},
                       {.src = 2, .dst = 1, .n = 8 * BIG},
                       {.src = 1, .dst = 0, .n = 8 * BIG}};
    return loads_fail(r, l, ARRAY_LEN(l), 1u << 2, true);
}

static void dying_peer_is_named(bool tcp, const char *hosts, const char *says)
{
    struct world w = {.size = 3,
                      .tcp = tcp,
                      .hosts = hosts,
                      .body = body_dying_peer,
                      .timeout_s = 60};
    assert_int_equal(world_run(&w), 0);
    for (int i = 0; i < 2; i++)
        if (strncmp(w.said[i], says, strlen(says)) != 0)
            fail_msg("rank %d says: %s", i, w.said[i]);
}

UNIT_TEST(a_peer_that_dies_in_one_of_several_transfers_is_named)
{
    dying_peer_is_named(false, NULL, "lost rank 2 (host h): ");
    dying_peer_is_named(true, NULL, "lost rank 2 (host h): ");
    dying_peer_is_named(false, "aab", "lost rank 2 (host b): ");
}

static int body_silent_peers(struct rank *r)
{
    struct load l[] = {{.src = 0, .dst = 1, .n = 8 * BIG},
                       {.src = 2, .dst = 0, .n = 8 * BIG}};
    return loads_fail(r, l, ARRAY_LEN(l), 1u << 1 | 1u << 2, false);
}

UNIT_TEST(peers_that_do_nothing_are_named)
{
    for (int tcp = 0; tcp < 2; tcp++) {
        struct world w = {.size = 3,
                          .tcp = tcp,
                          .body = body_silent_peers,
                          .peer_timeout_ms = 500,
                          .timeout_s = 60};
        assert_int_equal(world_run(&w), 0);
        if (strncmp(w.said[0], "rank ", 5) != 0
            || !strstr(w.said[0], " was silent inside an operation for 0.5 s"))
            fail_msg("rank 0 says: %s", w.said[0]);
    }
}

/* --- one rank's view --- */

/* Rank 0 begins to receive; rank 1 sends when it may. */
static int receive_after(struct rank *r, int (*before)(struct rank *, struct load *))
{
    struct load l = {.src = 1, .dst = 0, .n = 64};
    struct pairs p = {0};
    struct err err = ERR_INIT;
    int rc = pairs_open(r, &p, &err);
    if (rc < 0 || !p.v[0][1])
        return SAY(r, "%s", err.text);
    load_make(r, &p, &l, 0);
    rc = before(r, &l);
    if (rc == 0 && loads_run(r, &l, 1, &err) < 0)
        rc = SAY(r, "%s", err.text);
    rc = rc != 0 ? rc : load_check(r, &l, 0);
    free(l.data);
    world_meet(r, r->size);
    pairs_close(r, &p);
    return rc;
}

static int second_post_is_refused(struct rank *r, struct load *l)
{
    struct err err = ERR_INIT;
    uint64_t ticket;
    if (r->rank == 1) {
        while (atomic_load(&r->m->flag) == 0 && clock_now_ns() < r->env.deadline_ns)
            sched_yield();
        return 0;
    }
    int rc = loads_poll(l, 1, &err);
    if (rc != 1 || backend_cpu.post(l->b, &l->batch, &ticket, &err) != -EBUSY
        || strcmp(err.text, "post while a transfer is not done") != 0)
        return SAY(r, "%d left: \"%s\"", rc, err.text);
    atomic_store(&r->m->flag, 1);
    return 0;
}

static int body_one_at_a_time(struct rank *r)
{
    return receive_after(r, second_post_is_refused);
}

UNIT_TEST(a_pair_has_one_transfer_at_a_time)
{
    world_expect(body_one_at_a_time, 2, false, NULL);
    world_expect(body_one_at_a_time, 2, true, NULL);
}

/* A sleeping receiver's slice is longer than the test may take: it is woken. Rank 1 waits
 * for the sleep; over TCP it cannot see it and waits for the thread's state. */
static bool peer_sleeps(struct rank *r, const struct load *l)
{
    const struct cpu *c = (const struct cpu *)(const void *)l->b;
    char path[64], text[256] = "";
    if (c->n_hosts == 1)
        return atomic_load(&c->shm.h->lines[c->shm.line_of[c->shm.me]].waiters) > 0;
    (void)snprintf(path, sizeof(path), "/proc/%u/syscall", atomic_load(&r->m->flag));
    FILE *f = fopen(path, "r");
    bool is_read = f && fgets(text, sizeof(text), f);
    if (f)
        (void)fclose(f);
    return !is_read || strtol(text, NULL, 10) == SYS_ppoll; /* not readable: continue */
}

static int sleep_long(struct rank *r, struct load *l)
{
    struct cpu *c = (struct cpu *)(void *)l->b;
    if (r->rank == 0) {
        c->w.slice_ns = 1000 * NS_PER_S;
        atomic_store(&r->m->flag, (unsigned)getpid());
        return 0;
    }
    while ((atomic_load(&r->m->flag) == 0 || !peer_sleeps(r, l))
           && clock_now_ns() < r->env.deadline_ns)
        sched_yield();
    return 0;
}

static int body_woken(struct rank *r)
{
    return receive_after(r, sleep_long);
}

UNIT_TEST(a_sleeping_receiver_is_woken_by_its_sender)
{
    world_expect(body_woken, 2, false, NULL);
    world_expect(body_woken, 2, true, NULL);
}

UNIT_MAIN(NULL, NULL)
