/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators of process sets: created by all, used by some, overlapping, of one
 * member, across hosts, of a set of a set. What ends a parent ends them, errors name
 * global ranks, and a set that cannot be created is an error on every rank. */
#include <pthread.h>

#include "tests/unit/unit.h"

#include "tests/unit/cpu_world.h"

static bool is_in(const uint32_t *ranks, uint32_t n, uint32_t rank)
{
    bool is_found = false;
    for (uint32_t i = 0; i < n; i++)
        is_found = is_found || ranks[i] == rank;
    return is_found;
}

/* An agreement of the set: the bits that all members have. */
static int agree_on(struct rank *r, struct backend *b, uint64_t want, struct err *err)
{
    uint64_t mine = ~(1ull << r->rank), got = 0;
    int rc = b->ops->agree_begin(b, &mine, 1, err);
    if (rc == 0)
        rc = agree_until_done(b, &got, NS_PER_MS, r->env.deadline_ns, err);
    return rc < 0        ? rc
           : got == want ? 0
                         : err_set(err, -EBADMSG, "agreed on %llx, not %llx",
                                   (unsigned long long)got, (unsigned long long)want);
}

/* Sum and agreement among the set; both are right for exactly this set. */
static int subset_use(struct rank *r,
                      struct backend *b,
                      const uint32_t *ranks,
                      uint32_t n,
                      uint64_t count)
{
    struct err err = ERR_INIT;
    int64_t *x = malloc((count + 1) * 8), want = 0;
    for (uint32_t i = 0; i < n; i++)
        want += 1 << ranks[i];
    for (uint64_t i = 0; i < count; i++)
        x[i] = (1 << r->rank) + (int64_t)i;
    int rc = sum_run(b, DT_I64, x, count, &err);
    for (uint64_t i = 0; i < count && rc == 0; i++)
        if (x[i] != want + (int64_t)(i * n))
            rc = SAY(r, "sum of a set of %u: [%llu] is %lld", n, (unsigned long long)i,
                     (long long)x[i]);
    if (rc == 0)
        rc = agree_on(r, b, ~(uint64_t)want, &err);
    if (rc < 0)
        rc = SAY(r, "set of %u: %s", n, err.text);
    free(x);
    return rc;
}

static const struct set {
    uint32_t n, ranks[WORLD_MAX];
} sets[] = {
    {2, {0, 1}}, {2, {1, 3}},       {3, {0, 2, 4}},       {1, {2}},
    {1, {0}},    {4, {1, 2, 3, 4}}, {5, {0, 1, 2, 3, 4}},
};
enum { N_SETS = sizeof(sets) / sizeof(*sets) };

static int body_sets(struct rank *r)
{
    struct backend *child[N_SETS];
    struct err err = ERR_INIT;
    uint32_t everyone[WORLD_MAX];
    int rc = 0;
    for (uint32_t i = 0; i < r->size; i++)
        everyone[i] = i;
    for (size_t s = 0; s < N_SETS; s++) {
        child[s] = (struct backend *)&child; /* must be written */
        if (backend_cpu.subset(r->b, sets[s].ranks, sets[s].n, r->env.deadline_ns,
                               &child[s], &err)
            < 0)
            return SAY(r, "set %zu: %s", s, err.text);
        if (is_in(sets[s].ranks, sets[s].n, r->rank) != (child[s] != NULL))
            return SAY(r, "set %zu: %s", s, child[s] ? "got one" : "got none");
    }
    for (int round = 0; round < 3; round++)
        for (size_t s = 0; s < N_SETS && rc == 0; s++) {
            if (is_in(sets[s].ranks, sets[s].n, r->rank))
                rc = subset_use(r, child[s], sets[s].ranks, sets[s].n,
                                round == 1 ? 300001 : 5);
            if (rc == 0 && s % 3 == 0)
                rc = subset_use(r, r->b, everyone, r->size, 100);
        }
    for (size_t s = 0; s < N_SETS; s++)
        backend_cpu.close(child[s]);
    return rc == 0 ? subset_use(r, r->b, everyone, r->size, 70000) : rc;
}

/* Sets {1, 2, 4} of the world, and members 0 and 2 of it, ranks 1 and 4. */
static int body_set_of_a_set(struct rank *r)
{
    const uint32_t outer[] = {1, 2, 4}, inner[] = {0, 2}, global[] = {1, 4};
    struct backend *a = NULL, *b = NULL;
    struct err err = ERR_INIT;
    int rc = backend_cpu.subset(r->b, outer, 3, r->env.deadline_ns, &a, &err);
    if (rc == 0 && a)
        rc = backend_cpu.subset(a, inner, 2, r->env.deadline_ns, &b, &err);
    if (rc < 0)
        return SAY(r, "%s", err.text);
    if (b && is_in(global, 2, r->rank))
        rc = subset_use(r, b, global, 2, 1000);
    if (rc == 0 && a && is_in(outer, 3, r->rank))
        rc = subset_use(r, a, outer, 3, 1000);
    backend_cpu.close(b);
    backend_cpu.close(a);
    return rc;
}

/* Many sets one after the other leak nothing (descriptors would run out first). */
static int body_come_and_go(struct rank *r)
{
    const uint32_t all[] = {0, 1, 2, 3, 4};
    for (uint32_t k = 0; k < 60; k++) {
        uint32_t n = 1 + k % r->size;
        const uint32_t *ranks = all + k % (r->size - n + 1);
        struct backend *b = NULL;
        struct err err = ERR_INIT;
        if (backend_cpu.subset(r->b, ranks, n, r->env.deadline_ns, &b, &err) < 0)
            return SAY(r, "%s", err.text);
        if (b && is_in(ranks, n, r->rank) && subset_use(r, b, ranks, n, 10) != 0)
            return 1;
        backend_cpu.close(b);
        int lowest = dup(0); /* the lowest free descriptor */
        close(lowest);
        if (lowest > 40)
            return SAY(r, "descriptors are left open");
    }
    return 0;
}

static void five_run(int (*body)(struct rank *r))
{
    world_expect(body, 5, false, NULL);
    world_expect(body, 5, true, NULL);
    world_expect(body, 5, false, "aabba");
    world_expect(body, 5, false, "abcab");
}

UNIT_TEST(overlapping_sets_are_independent)
{
    five_run(body_sets);
}

UNIT_TEST(sets_have_sets)
{
    five_run(body_set_of_a_set);
}

UNIT_TEST(sets_leave_nothing_open)
{
    world_expect(body_come_and_go, 5, false, "aabba");
}

/* --- failures --- */

/* Ranks 1 and 3 of the world; 3 dies, 1 must name it, not "rank 1 of the set". */
static int body_lost_in_a_set(struct rank *r)
{
    const uint32_t ranks[] = {1, 3};
    struct backend *b = NULL;
    struct err err = ERR_INIT;
    int64_t x[1000] = {0};
    if (backend_cpu.subset(r->b, ranks, 2, r->env.deadline_ns, &b, &err) < 0)
        return SAY(r, "%s", err.text);
    if (r->rank == 3) {
        atomic_store(&r->m->when[3], clock_now_ns());
        raise(SIGKILL);
    }
    int rc = 0;
    while (r->rank == 1 && rc == 0 && clock_now_ns() < r->env.deadline_ns)
        rc = sum_run(b, DT_I64, x, 1000, &err);
    atomic_store(&r->m->when[r->rank], clock_now_ns());
    (void)SAY(r, "%s", err.text);
    backend_cpu.close(b);
    world_meet(r, 3);
    return r->rank == 1 && rc == 0;
}

UNIT_TEST(lost_rank_of_a_set_is_named_by_its_global_rank)
{
    for (int tcp = 0; tcp < 2; tcp++) {
        struct world w = {
            .size = 4, .tcp = tcp, .body = body_lost_in_a_set, .timeout_s = 20};
        assert_int_equal(world_run(&w), 0);
        if (!strstr(w.said[1], "lost rank 3 (host h): "))
            fail_msg("rank 1 says: %s", w.said[1]);
        assert_true(w.when[1] - w.when[3] < NS_PER_S);
    }
}

/* Rank 0 waits in a set for one that is late; the world is aborted. */
static int body_abort(struct rank *r)
{
    const uint32_t ranks[] = {0, 2};
    struct backend *b = NULL;
    struct err err = ERR_INIT;
    pthread_t t;
    int rc = 0;
    if (backend_cpu.subset(r->b, ranks, 2, r->env.deadline_ns, &b, &err) < 0)
        return SAY(r, "%s", err.text);
    if (r->rank == 0) {
        if (pthread_create(&t, NULL, abort_soon, r) != 0)
            return SAY(r, "no thread");
        atomic_store(&r->m->flag, 1);
        rc = barrier_run(b, &err);
        pthread_join(t, NULL);
        (void)SAY(r, "%s", err.text);
        rc = rc == -ECANCELED ? 0 : 1;
    }
    world_meet(r, 3);
    backend_cpu.close(b);
    return rc;
}

UNIT_TEST(abort_of_the_world_reaches_sets)
{
    for (int tcp = 0; tcp < 2; tcp++) {
        struct world w = {.size = 3, .tcp = tcp, .body = body_abort, .timeout_s = 20};
        assert_int_equal(world_run(&w), 0);
        assert_string_equal(w.said[0], "aborted");
    }
}

/* Rank 2 runs out of memory, at each of its allocations in turn. Either all ranks
 * report it, or all have the set. */
static int body_out_of_memory(struct rank *r)
{
    long k = *(const long *)r->arg;
    const uint32_t ranks[] = {1, 2, 3};
    struct backend *b = NULL;
    struct err err = ERR_INIT;
    if (r->rank == 2)
        mem_fail_after(k);
    int rc = backend_cpu.subset(r->b, ranks, 3, clock_now_ns() + NS_PER_S, &b, &err);
    if (r->rank == 2 && mem_fail_fired())
        atomic_store(&r->m->when[2], 1);
    mem_fail_after(-1);
    (void)SAY(r, "%d %s", rc, rc < 0 ? err.text : "");
    backend_cpu.close(b);
    return 0;
}

UNIT_TEST(a_set_that_cannot_be_created_is_refused_by_all)
{
    for (int shape = 0; shape < 2; shape++)
        for (long k = 0;; k++) {
            struct world w = {.size = 4,
                              .tcp = shape == 1,
                              .body = body_out_of_memory,
                              .arg = &k,
                              .peer_timeout_ms = 2000,
                              .timeout_s = 20};
            assert_int_equal(world_run(&w), 0);
            if (w.when[2] == 0)
                break; /* no allocation failed */
            assert_true(k < 100);
            bool is_made = w.said[2][0] == '0';
            for (int i = 0; i < 4; i++)
                if ((w.said[i][0] == '0') != is_made)
                    fail_msg("allocation %ld: rank 2 says %s, rank %d %s", k, w.said[2],
                             i, w.said[i]);
            /* when rank 2 has left within a round, each rank names the one that it saw
             * leave first */
            for (int i = 0; i < 4 && !is_made; i++)
                if (strstr(w.said[i], "process set: ") && !strstr(w.said[i], "rank 2"))
                    fail_msg("allocation %ld: rank %d says %s", k, i, w.said[i]);
        }
}

static int body_bad_ranks(struct rank *r)
{
    static const struct {
        uint32_t n, ranks[2];
        const char *says;
    } rows[] = {
        {0, {0, 0}, "process set: no ranks"},
        {2, {1, 1}, "process set: ranks must ascend below 2, number 1 is 1"},
        {2, {0, 2}, "process set: ranks must ascend below 2, number 1 is 2"},
    };
    size_t i = *(const size_t *)r->arg;
    struct backend *b = NULL;
    struct err err = ERR_INIT;
    int rc = backend_cpu.subset(r->b, rows[i].ranks, rows[i].n, r->env.deadline_ns, &b,
                                &err);
    if (rc != -EINVAL || b || strcmp(err.text, rows[i].says) != 0)
        return SAY(r, "%d %s", rc, err.text);
    if (barrier_run(r->b, &err) != -EPIPE) /* as after a failed post */
        return SAY(r, "not broken");
    return 0;
}

UNIT_TEST(bad_ranks_are_refused)
{
    for (size_t i = 0; i < 3; i++) {
        struct world w = {
            .size = 2, .body = body_bad_ranks, .arg = &i, .timeout_s = 20};
        assert_int_equal(world_run(&w), 0);
    }
}

UNIT_MAIN(NULL, NULL)
