/* SPDX-License-Identifier: Apache-2.0 */
/* Process sets and join where ranks do not all do their part: late, leaving, killed, in
 * two threads at once, with different configurations. */
#include <pthread.h>
#include <sched.h>

#include "tests/unit/hvd_world.h"

static int add_set(const int *ranks, int n)
{
    int id = 0, rc = hvd_process_set_add(ranks, n, &id);

    return rc < 0 ? rc : id;
}

/* --- static sets --- */

static struct hvd_config
config_of(int n_sets, const int *sizes, const int *ranks, uint64_t timeout_ms)
{
    return (struct hvd_config){.size_bytes = sizeof(struct hvd_config),
                               .start_timeout_ms = timeout_ms,
                               .n_sets = n_sets,
                               .set_sizes = sizes,
                               .set_ranks = ranks};
}

/* One rank's configuration has no sets: init must not wait for ever. */
WORLD_GO_TEST(init_is_bounded_when_configs_differ, 2, 1u << 0)
{
    static const int sizes[] = {1}, ranks[] = {0};
    struct hvd_config c = config_of(rank == 0, sizes, ranks, rank == 0 ? 5000 : 20000);

    if (rank == 1) {
        CHECK_OK(hvd_init(&c));
        go_wait(1);
        CHECK_OK(hvd_shutdown());
        return;
    }
    CHECK_FAILS(hvd_init(&c), HVD_TIMEOUT,
                "hvd_config, set 1: process set: not all ranks");
    CHECK(hvd_is_initialized() == 0, "initialized");
    stage_set(rank, 1);
}

WORLD_TEST(configs_with_other_ranks_are_refused, 2)
{
    static const int sizes[] = {1};
    const int ranks[] = {rank};
    struct hvd_config c = config_of(1, sizes, ranks, 20000);

    CHECK_FAILS(hvd_init(&c), HVD_INVALID_ARGUMENT, "hvd_config, set 1: Mismatched");
    CHECK(hvd_is_initialized() == 0, "initialized");
}

/* --- somebody does not come --- */

INIT_TEST(a_rank_that_leaves_ends_the_adding_of_a_set, 3)
{
    const int ranks[] = {0};

    if (rank == 2) { /* never adds */
        CHECK_OK(barrier_now("all are here"));
        return;
    }
    CHECK_OK(barrier_now("all are here"));
    CHECK_FAILS(add_set(ranks, 1), HVD_PRECONDITION, "rank 2");
    CHECK(hvd_process_set_ids(NULL, 0) == 1, "a set that has not come");
}

INIT_KILL_TEST(a_killed_rank_ends_the_adding_of_a_set, 3, 2)
{
    const int ranks[] = {0, 1};

    stage_set(rank, 1);
    if (rank == 2) {
        go_wait(1); /* for a signal */
        return;
    }
    CHECK_FAILS(add_set(ranks, 2), HVD_ABORTED, "rank 2");
}

/* A member is lost: the set gets the error, and so does the rank outside. */
INIT_KILL_TEST(a_lost_member_of_a_set_is_named_everywhere, 3, 2)
{
    const int ranks[] = {0, 2};
    float v[3000] = {0};
    int id, rc = HVD_OK;

    id = add_set(ranks, 2);
    CHECK(id == 1, "%s", hvd_last_error());
    stage_set(rank, 1);
    while (rc == HVD_OK)
        rc = rank == 1 ? barrier_now("x") : sum_in(id, "x", v, ARRAY_LEN(v));
    CHECK(rc == HVD_ABORTED, "%d %s", rc, hvd_last_error());
    CHECK_FAILS(barrier_now("x"), HVD_ABORTED, "rank 2");
}

/* --- threads --- */

/* Both add the same set: one of them waits for rank 1, the other is refused meanwhile,
 * and only then rank 1 comes. */
static void *add_in_thread(void *arg)
{
    const int ranks[] = {0};
    int *ret = arg;

    *ret = add_set(ranks, 1);
    if (*ret == HVD_INVALID_ARGUMENT && strstr(hvd_last_error(), "another thread of"))
        stage_set(0, 1);
    return NULL;
}

INIT_GO_TEST(one_thread_at_a_time_changes_sets, 2, 1u << 0)
{
    const int ranks[] = {0};
    int got[2] = {0, 0};
    pthread_t th;

    if (rank == 1) {
        go_wait(1);
        CHECK(add_set(ranks, 1) == 1, "%s", hvd_last_error());
    } else {
        CHECK(pthread_create(&th, NULL, add_in_thread, &got[0]) == 0, "pthread_create");
        (void)add_in_thread(&got[1]);
        (void)pthread_join(th, NULL);
        CHECK(got[0] + got[1] == 1 + HVD_INVALID_ARGUMENT, "%d and %d", got[0], got[1]);
    }
}

/* Threads of one rank work in different sets at once. */
struct worker {
    int id, bad;
    float want;
    char what[256]; /* the last thing that was bad */
};

static void *worker_main(void *arg)
{
    struct worker *k = arg;
    char name[32];

    for (int i = 0; i < 150; i++) {
        float v = 1;

        (void)snprintf(name, sizeof(name), "set%d/%d", k->id, i % 5);
        if (sum_in(k->id, name, &v, 1) != HVD_OK || v != k->want) {
            k->bad++;
            (void)snprintf(k->what, sizeof(k->what), "round %d: %g, \"%s\"", i,
                           (double)v, hvd_last_error());
        }
    }
    return NULL;
}

WORLD_TEST(threads_work_in_overlapping_sets, 3)
{
    static const int sizes[] = {2, 2, 2, 1};
    static const int ranks[] = {0, 1, 1, 2, 0, 2, 1};
    struct hvd_config c = config_of(4, sizes, ranks, 20000);
    struct worker k[5];
    pthread_t th[5];
    int n = 0;

    CHECK_OK(hvd_init(&c));
    for (int id = 0; id < 5; id++)
        if (hvd_process_set_rank(id) >= 0)
            k[n++] = (struct worker){.id = id, .want = (float)hvd_process_set_size(id)};
    CHECK(n == (rank == 1 ? 4 : 3) && size == 3, "%d sets", n);
    for (int i = 0; i < n; i++)
        CHECK(pthread_create(&th[i], NULL, worker_main, &k[i]) == 0, "pthread_create");
    for (int i = 0; i < n; i++)
        (void)pthread_join(th[i], NULL);
    for (int i = 0; i < n; i++)
        CHECK(k[i].bad == 0, "set %d: %d wrong, %s", k[i].id, k[i].bad, k[i].what);
    CHECK_OK(barrier_now("all are through")); /* a rank that leaves ends all sets */
    CHECK_OK(hvd_shutdown());
}

/* --- join --- */

static int join_now(const char *name, int *ret_last)
{
    struct hvd_tensor t = {.size_bytes = sizeof(t), .name = name, .device = -1};
    hvd_handle h;
    int rc = hvd_join_async(&t, &h);

    if (rc == HVD_OK)
        rc = hvd_wait(h, 20000);
    if (rc == HVD_OK)
        *ret_last = hvd_joined_last(h);
    return rc;
}

INIT_KILL_TEST(a_killed_rank_ends_a_join, 3, 1)
{
    int last = -1;

    stage_set(rank, 1);
    if (rank == 1) {
        go_wait(1); /* for a signal */
        return;
    }
    CHECK_FAILS(join_now("join", &last), HVD_ABORTED, "rank 1");
}

/* A joined rank leaves: allreduces on the other rank lack it and say so. */
WORLD_GO_TEST(a_joined_rank_that_leaves_ends_it, 2, 1u << 1)
{
    struct hvd_tensor t = {.size_bytes = sizeof(t), .name = "join", .device = -1};
    float v = 1;
    hvd_handle h;
    int r = HVD_OK;

    CHECK_OK(hvd_init(NULL));
    if (rank == 0) {
        CHECK_OK(hvd_join_async(&t, &h));
        stage_set(rank, 1);
        go_wait(1);
        CHECK_OK(hvd_shutdown());
        CHECK(hvd_wait(h, 0) == HVD_PRECONDITION, "%s", hvd_last_error());
        return;
    }
    CHECK_OK(sum_now("x", &v, 1)); /* rank 0 has joined */
    CHECK(v == 1.0f, "%g", (double)v);
    stage_set(rank, 1);
    for (int i = 0; i < 1000000 && r == HVD_OK; i++)
        r = sum_now("x", &v, 1);
    CHECK(r == HVD_PRECONDITION, "%d %s", r, hvd_last_error());
    CHECK_OK(hvd_shutdown());
}

/* --- sets that their members add --- */

/* The sum of ones over the set, or a negative status. */
static int ones_in(int id, const char *name)
{
    float v = 1;
    int rc = sum_in(id, name, &v, 1);

    return rc < 0 ? rc : (int)v;
}

struct pair_of_sets { /* of equal ranks */
    int met, added;
};

/* The other ranks of the world wait for something else meanwhile. */
INIT_TEST(members_add_a_set_without_other_ranks, 4)
{
    static const int low[] = {1, 0}, high[] = {2, 3}, outer[] = {0, 3},
                     whole[] = {0, 1, 2, 3};
    int id = -1, again = -1, all = -1, both = -1;

    for (int i = 0; i < 40; i++) /* a plan that must be left for it */
        CHECK(ones_in(0, "planned") == 4, "sum of all, round %d", i);
    CHECK_OK(hvd_process_set_meet(rank < 2 ? low : high, 2, &id));
    CHECK(id == 1 || id == 2, "id %d", id);
    CHECK(ones_in(id, "both") == 2, "sum in set %d", id);
    CHECK_OK(hvd_process_set_meet(rank < 2 ? low : high, 2, &again));
    CHECK(again == id, "a set that is there is met again as %d, not %d", again, id);
    CHECK_OK(hvd_process_set_meet(whole, 4, &all));
    CHECK(all == 0, "all ranks are set %d", all);
    if (rank == 0 || rank == 3) {
        CHECK_OK(hvd_process_set_meet(outer, 2, &both));
        CHECK(ones_in(both, "outer") == 2, "sum in set %d", both);
    } else {
        CHECK_FAILS(hvd_process_set_meet(outer, 2, &both), HVD_INVALID_ARGUMENT,
                    "only those can call");
    }
    CHECK(ones_in(0, "end") == 4, "sum of all");
    CHECK(hvd_process_set_rank(3) == (rank == 0 ? 0 : rank == 3 ? 1 : -1), "rank in 3");
    CHECK_OK(hvd_process_set_remove(3));
}

static void both_add_up(const struct pair_of_sets *s, int rank, const char *name)
{
    if (rank != 0 && rank != 3)
        return;
    CHECK(ones_in(s->met, name) == 2, "sum in set %d", s->met);
    CHECK(ones_in(s->added, name) == 2, "sum in set %d", s->added);
}

/* Neither is the other's, whichever comes first. */
INIT_TEST(members_and_the_world_add_two_sets_of_equal_ranks, 4)
{
    static const int outer[] = {0, 3};
    struct pair_of_sets s = {-1, -1};
    bool is_in = rank == 0 || rank == 3;
    int id = -1;

    for (int i = 0; i < 2; i++) {
        if (i == 0 && is_in)
            CHECK_OK(hvd_process_set_meet(outer, 2, &s.met));
        CHECK_OK(hvd_process_set_add(outer, 2, &s.added));
        if (is_in) {
            CHECK_OK(hvd_process_set_meet(outer, 2, &id));
            CHECK(id == s.met && id != s.added, "set %d", id);
        }
        both_add_up(&s, rank, "both");
        CHECK(hvd_process_set_ids(NULL, 0) == 2, "a set of members is listed");
        CHECK(hvd_process_set_add(outer, 2, &id) == HVD_INVALID_ARGUMENT,
              "added twice");
        CHECK_OK(hvd_process_set_remove(s.added));
        CHECK(!is_in || ones_in(s.met, "left") == 2, "sum in set %d", s.met);
        CHECK(ones_in(0, "end") == 4, "sum of all"); /* nobody leaves before */
    }
}

UNIT_MAIN(NULL, NULL)
