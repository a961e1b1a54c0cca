/* SPDX-License-Identifier: Apache-2.0 */
/* The frozen plan in real worlds: steady steps continue without messages, and whatever
 * disturbs them (another tensor, another shape, a late, a dead, a leaving rank) is
 * dealt with as if there were no plan. */
#include "tests/unit/hvd_tree.h"
#include "tests/unit/hvd_world.h"
#include "tests/unit/timed.h"

enum { STEADY = 60 };

/* One step of two tensors, in an order that differs by rank. */
static int run_step(int rank, int size, int i)
{
    float a = (float)i, b = (float)rank;
    const struct set_sum s[] = {{0, "a", &a}, {0, "b", &b}};
    int turn = rank % 2, rc = sum_two(&s[turn], &s[!turn], turn);

    if (rc == HVD_OK) {
        CHECK(a == (float)(i * size), "step %d: %g", i, (double)a);
        CHECK(b == (float)(size * (size - 1)) / 2, "step %d: %g", i, (double)b);
    }
    return rc;
}

static void run_steady(int rank, int size)
{
    for (int i = 0; i < STEADY; i++)
        CHECK_OK(run_step(rank, size, i));
}

INIT_BODY(steady_body)
{
    struct hvd_stats before, after;

    run_steady(rank, size);
    before = stats_now();
    for (int i = 0; i < 1000; i++)
        CHECK_OK(run_step(rank, size, i));
    after = stats_now();
    CHECK(after.planned - before.planned >= 1990, "%llu planned",
          (unsigned long long)(after.planned - before.planned));
    CHECK(after.control_sent - before.control_sent <= 10, "%llu messages",
          (unsigned long long)(after.control_sent - before.control_sent));
    CHECK_OK(barrier_now("end"));
}

TREE_TEST(steady_steps_send_no_messages)
{
    world_run(1, steady_body);
    world_run(n_ranks, steady_body);
}

/* --- disturbances that all ranks make --- */

INIT_BODY(disturbed_body)
{
    float m;

    for (int round = 0; round < 8; round++) {
        float big[40];

        run_steady(rank, size);
        m = 1;
        CHECK_OK(sum_now("metric", &m, 1)); /* not of the plan */
        CHECK(m == (float)size, "metric %g", (double)m);
        run_steady(rank, size);
        for (int i = 0; i < 40; i++)
            big[i] = (float)i;
        CHECK_OK(sum_now("a", big, 10 + round)); /* another shape */
        for (int i = 0; i < 10 + round; i++)
            CHECK(big[i] == (float)(i * size), "a[%d] is %g", i, (double)big[i]);
        CHECK_OK(barrier_now("barrier"));
    }
}

UNIT_TEST(another_tensor_or_shape_is_no_matter)
{
    world_run(2, disturbed_body);
    world_run(4, disturbed_body);
}

INIT_TEST(one_rank_of_another_shape_fails_that_tensor_only, 3)
{
    float v[2] = {1, 1};

    run_steady(rank, size);
    CHECK_KEPT(sum_now("a", v, rank == 1 ? 2 : 1), HVD_INVALID_ARGUMENT,
               "Mismatched ALLREDUCE tensor shapes: tensor \"a\": rank ");
    CHECK(strstr(KEPT_TEXT, "rank 1 has [2]"), "%s", KEPT_TEXT);
    run_steady(rank, size);
}

/* Ranks 1 and 2 continue in a set of their own while rank 0, which knows of nothing, is
 * between two steps: it must leave the plan for them without a call of its own. */
INIT_GO_TEST(a_set_does_not_wait_for_an_idle_rank_outside, 3, 1u << 1 | 1u << 2)
{
    static const int pair[] = {1, 2};
    int set;

    CHECK_OK(hvd_process_set_add(pair, 2, &set));
    run_steady(rank, size);
    if (rank == 0) {
        go_wait(1);
    } else {
        float v = (float)rank;

        CHECK_OK(sum_in(set, "pair", &v, 1));
        CHECK(v == 3, "%g", (double)v);
        stage_set(rank, 1);
    }
    run_steady(rank, size);
}

/* --- ranks that do not come --- */

INIT_GO_TEST(a_wait_ends_at_its_deadline, 3, 1u << 1 | 1u << 2)
{
    float v = 1;
    hvd_handle h;

    run_steady(rank, size);
    if (rank == 0) {
        go_wait(1);
        CHECK_OK(sum_now("a", &v, 1));
    } else {
        uint64_t t0 = clock_now_ns();
        int r;

        CHECK_OK(sum_async("a", &v, 1, &h));
        r = hvd_wait(h, 50);
        CHECK(r == HVD_TIMEOUT, "%d", r);
        CHECK(clock_now_ns() - t0 < 20 * NS_PER_S, "waited for %llu ms",
              (unsigned long long)((clock_now_ns() - t0) / NS_PER_MS));
        stage_set(rank, 1);
        CHECK_OK(wait_release(h));
    }
    CHECK(v == (float)size, "%g", (double)v);
    CHECK_OK(barrier_now("end"));
}

static int victim;

INIT_BODY(mortal_body)
{
    int r = HVD_OK;

    run_steady(rank, size);
    stage_set(rank, 1);
    for (int i = 0; r == HVD_OK && (rank != victim || i < 100); i++)
        r = run_step(rank, size, i);
    if (rank == victim) {
        stage_set(rank, 2);
        for (;;)
            (void)pause();
    }
    end_report(r);
}

/* Was the loss reported to all within a second? */
static bool is_reported_soon(void)
{
    struct proc_world w;
    /* when all other ranks wait for it in an agreement */
    const uint64_t t0 = world_kill(&w, n_ranks, mortal_body, victim, 1u << victim, 2);

    return world_end_killed(&w, victim, t0) < NS_PER_S;
}

TREE_TEST(a_killed_rank_is_named)
{
    for (victim = 0; victim < n_ranks; victim++)
        ASSERT_IN_TIME(is_reported_soon());
}

static void leaver_body(int rank, int size)
{
    int rc = HVD_OK;

    CHECK_OK(hvd_init(NULL));
    run_steady(rank, size);
    if (rank == victim) {
        hvd_handle h;
        float v = 1;

        CHECK_OK(sum_async("a", &v, 1, &h)); /* offered, and never to be */
        CHECK_OK(hvd_shutdown());
        rc = hvd_wait(h, 0);
        CHECK(rc == HVD_PRECONDITION, "%d: %s", rc, hvd_last_error());
        CHECK_OK(hvd_release(h));
        return;
    }
    for (int i = 0; i < 3; i++) { /* b is missing on the leaver */
        float v = 1;

        rc = sum_now("b", &v, 1);
        if (rc < 0)
            break;
    }
    CHECK_KEPT(rc, HVD_PRECONDITION, "called shutdown()");
    CHECK_OK(hvd_shutdown());
}

TREE_TEST(the_rank_that_leaves_is_named)
{
    for (victim = 0; victim < n_ranks; victim++)
        world_run(n_ranks, leaver_body);
}

WORLD_GO_TEST(a_stall_names_the_missing_rank, 3, 1u << 0 | 1u << 2)
{
    float v = 1;

    (void)setenv("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "1", 1);
    CHECK_OK(hvd_init(NULL));
    run_steady(rank, size);
    if (rank == 1)
        go_wait(1);
    else
        CHECK_KEPT(sum_now("a", &v, 1), HVD_ABORTED, "for rank 1 (host testhost)");
    CHECK(rank == 1 || strstr(KEPT_TEXT, "tensor \"a\" (ALLREDUCE) has waited"), "%s",
          KEPT_TEXT);
    stage_set(rank, 1);
    (void)hvd_shutdown();
}

UNIT_MAIN(NULL, NULL)
