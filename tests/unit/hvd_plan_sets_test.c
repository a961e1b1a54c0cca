/* SPDX-License-Identifier: Apache-2.0 */
/* A model-parallel job in real worlds: four ranks, a row and a column of process sets
 * each and the world, overlapping in every way, on one host and on several. A plan
 * contains tensors of the world only; tensors of sets are negotiated, also while other
 * ranks compute, and make all ranks leave the plan. */
#include "tests/unit/hvd_world.h"

enum { SIDE = 2, RANKS = SIDE * SIDE, STEADY = 40, N_SETS = 2 * SIDE };

static int n_hosts; /* of four ranks */

/* A test on one host, on two, ... */
#define HOSTS_TEST(name, most)                                                         \
    static void name##_on_hosts(void);                                                 \
    UNIT_TEST(name)                                                                    \
    {                                                                                  \
        for (n_hosts = 1; n_hosts <= (most); n_hosts *= 2) {                           \
            print_message("# hosts: %d\n", n_hosts);                                   \
            name##_on_hosts();                                                         \
        }                                                                              \
    }                                                                                  \
    static void name##_on_hosts(void)

/* Likewise of one world, which continues once the ranks of the mask are at stage 1. */
#define HOSTS_WORLD_TEST(name, most, mask)                                             \
    RANK_BODY(name##_rank);                                                            \
    HOSTS_TEST(name, most)                                                             \
    {                                                                                  \
        world_run_go(RANKS, name##_rank, mask);                                        \
    }                                                                                  \
    RANK_BODY(name##_rank)

static int set_of_row[SIDE], set_of_column[SIDE];

static void world_enter(int rank)
{
    char host[16];

    (void)snprintf(host, sizeof(host), "h%d", rank * n_hosts / RANKS);
    (void)setenv("HVD_HOST_ID", host, 1);
    CHECK_OK(hvd_init(NULL));
    for (int i = 0; i < SIDE; i++) {
        const int row[] = {SIDE * i, SIDE * i + 1}, column[] = {i, SIDE + i};

        CHECK_OK(hvd_process_set_add(row, SIDE, &set_of_row[i]));
        CHECK_OK(hvd_process_set_add(column, SIDE, &set_of_column[i]));
    }
}

static int row_of(int rank)
{
    return set_of_row[rank / SIDE];
}

static int column_of(int rank)
{
    return set_of_column[rank % SIDE];
}

static float row_sum(int rank)
{
    int first = rank / SIDE * SIDE;

    return (float)(2 * first + 1);
}

static float column_sum(int rank)
{
    return (float)(2 * (rank % SIDE) + SIDE);
}

/* One step: the row's tensor and its wait, then column and world in an order that
 * differs by rank and step. */
static int run_step(int rank, int i)
{
    float a = (float)rank, b = (float)rank, c = (float)i;
    const struct set_sum s[] = {{column_of(rank), "column", &b}, {0, "world", &c}};
    int turn = (rank + i) % 2, rc = sum_in(row_of(rank), "row", &a, 1);

    if (rc < 0)
        return rc;
    CHECK(a == row_sum(rank), "row: %g", (double)a);
    rc = sum_two(&s[turn], &s[!turn], turn != i % 2);
    if (rc < 0)
        return rc;
    CHECK(b == column_sum(rank), "column: %g", (double)b);
    CHECK(c == (float)(i * RANKS), "world: %g", (double)c);
    return rc;
}

static void run_steady(int rank)
{
    for (int i = 0; i < STEADY; i++)
        CHECK_OK(run_step(rank, i));
}

/* Steps of the world alone, until they go by plan. No rank continues before the last
 * step, so none leaves the plan before this rank has checked that it lasts. */
static void enter_plan(void)
{
    for (int i = 0; i < STEADY; i++) {
        float v = 1;

        CHECK(i + 1 < STEADY || stats_now().plans > stats_now().plan_leaves, "no plan");
        CHECK_OK(sum_in(0, "world", &v, 1));
    }
}

static void world_leave(void)
{
    CHECK_OK(barrier_now("end"));
    CHECK_OK(hvd_shutdown());
}

/* Between two of the world's tensors there is always one of a set. */
HOSTS_WORLD_TEST(steps_with_sets_stay_with_bits, 4, 0)
{
    struct hvd_stats before, now;

    world_enter(rank);
    run_steady(rank);
    before = stats_now();
    for (int i = 0; i < 300; i++)
        CHECK_OK(run_step(rank, i));
    now = stats_now();
    CHECK(now.plans == 0, "%llu plans", (unsigned long long)now.plans);
    CHECK(now.cache_hits - before.cache_hits == 900, "%llu bits",
          (unsigned long long)(now.cache_hits - before.cache_hits));
    world_leave();
}

HOSTS_WORLD_TEST(a_plan_is_left_for_a_set_and_begins_again, 2, 0)
{
    world_enter(rank);
    for (uint32_t i = 1; i <= 5; i++) {
        float v = (float)rank;

        enter_plan();
        CHECK_OK(sum_in(row_of(rank), "row", &v, 1));
        CHECK(v == row_sum(rank), "%g", (double)v);
        CHECK(stats_now().plan_leaves >= i, "%llu left, not %u",
              (unsigned long long)stats_now().plan_leaves, i);
    }
    CHECK(stats_now().planned >= 5 * STEADY / 2, "%llu planned",
          (unsigned long long)stats_now().planned);
    world_leave();
}

/* --- ranks that have nothing to do with it --- */

/* The first row works while the other one's Python computes, and the other way. */
RANK_BODY(alone_body)
{
    world_enter(rank);
    for (uint32_t turn = 0; turn < SIDE; turn++) {
        uint64_t t0;

        enter_plan();
        t0 = clock_now_ns();
        if ((uint32_t)rank / SIDE != turn) {
            go_wait(turn + 1);
            continue;
        }
        for (int i = 0; i < 200; i++) {
            float v = (float)rank;

            CHECK_OK(sum_in(row_of(rank), "row", &v, 1));
            CHECK(v == row_sum(rank), "%g", (double)v);
        }
        CHECK(clock_now_ns() - t0 < 5 * NS_PER_S, "%llu ms for 200 sums",
              (unsigned long long)((clock_now_ns() - t0) / NS_PER_MS));
        stage_set(rank, turn + 1);
        go_wait(turn + 1);
    }
    run_steady(rank);
    world_leave();
}

HOSTS_TEST(a_set_works_while_other_ranks_compute, 4)
{
    struct proc_world w;

    world_start(&w, RANKS, alone_body);
    for (uint32_t turn = 0; turn < SIDE; turn++) {
        for (int r = 0; r < SIDE; r++)
            stage_wait(SIDE * (int)turn + r, turn + 1);
        go_set(turn + 1);
    }
    world_end(&w, -1);
}

/* --- disturbances of one set --- */

HOSTS_WORLD_TEST(what_disturbs_one_set_is_no_matter, 2, 0)
{
    world_enter(rank);
    for (int round = 0; round < 6; round++) {
        float big[40], m = 1;
        int extra;

        run_steady(rank);
        if (round % 3 == 0)
            enter_plan();
        for (int i = 0; i < 40; i++)
            big[i] = (float)i;
        if (rank < SIDE) {
            CHECK_OK(sum_in(row_of(rank), "row", big, 2 + round)); /* another shape */
            CHECK(big[1 + round] == (float)((1 + round) * SIDE), "%g",
                  (double)big[1 + round]);
        } else {
            CHECK_OK(sum_in(row_of(rank), "metric", &m, 1));
            CHECK(m == SIDE, "%g", (double)m);
        }
        run_steady(rank);
        if (round % 2) { /* sets come and go */
            CHECK_OK(hvd_process_set_add((const int[]){1, 2, 3}, 3, &extra));
            m = 1;
            for (int i = 0; i < STEADY && rank > 0; i++, m = 1)
                CHECK_OK(sum_in(extra, "extra", &m, 1));
            CHECK_OK(hvd_process_set_remove(extra));
        }
    }
    world_leave();
}

/* Data that ends unevenly: rank 3 joins, the rest continue in sets without it. */
HOSTS_WORLD_TEST(ranks_that_join_do_not_stop_sets, 1, 0)
{
    struct hvd_tensor t = {.size_bytes = sizeof(t), .name = "join"};
    hvd_handle h;

    world_enter(rank);
    run_steady(rank);
    for (int i = 0; i < 20 && rank < SIDE; i++) {
        float v = (float)rank;

        CHECK_OK(sum_in(row_of(rank), "row", &v, 1));
        CHECK(v == row_sum(rank), "%g", (double)v);
    }
    CHECK_OK(hvd_join_async(&t, &h));
    CHECK_OK(wait_release(h));
    run_steady(rank);
    world_leave();
}

/* --- ranks that do not come --- */

static int victim;

RANK_BODY(mortal_body)
{
    int r = HVD_OK;

    world_enter(rank);
    run_steady(rank);
    for (int i = 0; r == HVD_OK && (rank != victim || i < 50); i++)
        r = run_step(rank, i);
    if (rank == victim) {
        stage_set(rank, 1);
        for (;;)
            (void)pause();
    }
    end_report(r);
    CHECK_OK(hvd_shutdown());
}

HOSTS_TEST(a_killed_rank_is_named, 2)
{
    for (victim = 0; victim < RANKS; victim++) {
        struct proc_world w;

        (void)world_kill(&w, RANKS, mortal_body, victim, 1u << victim, 1);
        (void)world_end_killed(&w, victim, 0);
    }
}

/* Rank 1 does not submit its row: rank 0's error names it, after all left the plan. */
HOSTS_WORLD_TEST(a_stall_in_a_set_names_the_missing_rank, 1, 1u << 0)
{
    float v = 1;

    (void)setenv("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "1", 1);
    world_enter(rank);
    enter_plan();
    if (rank == 0)
        CHECK_KEPT(sum_in(row_of(rank), "row", &v, 1), HVD_ABORTED,
                   "for rank 1 (host testhost)");
    else
        go_wait(1);
    stage_set(rank, 1);
    (void)hvd_shutdown();
}

HOSTS_WORLD_TEST(leaving_ends_waits_in_sets, 2, 0)
{
    float v = 1;
    int r = HVD_OK;

    world_enter(rank);
    enter_plan();
    if (rank == 3) {
        CHECK_OK(hvd_shutdown());
        return;
    }
    while (r == HVD_OK) /* until the news is here; row 0 does without rank 3 */
        r = sum_in(rank < SIDE ? row_of(rank) : column_of(rank), "row", &v, 1);
    CHECK(r == HVD_PRECONDITION, "%d", r);
    CHECK_OK(hvd_shutdown());
}

UNIT_MAIN(NULL, NULL)
