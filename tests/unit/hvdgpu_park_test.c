/* SPDX-License-Identifier: Apache-2.0 */
/* What a failed world leaves on the GPUs, and how the next one uses it: rank 2 is
 * killed, ranks 0 and 1 form a world of their own. */
#include "tests/unit/hvdgpu_world.h"

enum { N = 100 };

static struct park_case {
    bool is_busy;     /* a batch waits for rank 2 when it dies */
    bool other_order; /* of the survivors */
    bool has_between; /* a world of them that uses no GPU, and ends in order */
    bool has_child;   /* rank 0 is forked between the worlds */
} the_case;

static void sum_once(int rank, int device, float members)
{
    float *v = floats_on_gpu(device, N);

    v[N - 1] = (float)(rank + 1);
    CHECK_OK(sum_gpu_now(device, "x", v, N, 0));
    CHECK(v[N - 1] == members, "%g, not %g", (double)v[N - 1], (double)members);
}

static void init_survivors(void)
{
    static const int left[] = {0, 1}, turned[] = {1, 0};
    struct hvd_config c = {.size_bytes = sizeof(c),
                           .start_timeout_ms = 20000,
                           .ranks = the_case.other_order ? turned : left,
                           .n_ranks = 2};

    CHECK_OK(hvd_init(&c));
}

/* The world is broken by the death of rank 2. */
static void rank_outlives(int rank)
{
    float *v = floats_on_gpu(rank, N), host[1] = {0};
    hvd_handle h;

    if (the_case.is_busy) {
        CHECK_OK(sum_on_gpu(rank, "lost", v, N, 0, &h));
        stage_set(rank, 1);
        CHECK(wait_release(h) == HVD_ABORTED, "%d", hvd_poll(h));
    } else {
        stage_set(rank, 1);
        CHECK(sum_now("of the host", host, 1) == HVD_ABORTED, "it has ended");
    }
    CHECK(strstr(shared->r[rank].text, "rank 2"), "%s", shared->r[rank].text);
    CHECK_OK(hvd_shutdown());
}

/* A world of its own, where what the parent has kept is not touched: the GPU cannot be
 * used in it. */
static void child_main(void)
{
    static const int alone[] = {0};
    struct hvd_config c = {.size_bytes = sizeof(c), .ranks = alone, .n_ranks = 1};
    float v[1] = {1};
    hvd_handle h;

    CHECK_OK(hvd_init(&c));
    CHECK(sum_on_gpu(0, "x", v, 1, 0, &h) == HVD_INVALID_ARGUMENT, "it is on the GPU");
    CHECK_OK(hvd_shutdown());
    _exit(0);
}

static void have_child(void)
{
    int status = -1;
    pid_t pid = fork();

    if (pid == 0)
        child_main();
    CHECK(waitpid(pid, &status, 0) == pid && status == 0, "status 0x%x", status);
}

RANK_BODY(worlds_body)
{
    CHECK_OK(hvd_init(NULL));
    sum_once(rank, rank, 6);
    if (rank == 2) {
        stage_set(rank, 1);
        (void)pause();
    }
    rank_outlives(rank);
    if (the_case.has_child && rank == 0)
        have_child();
    if (the_case.has_between) {
        init_survivors();
        CHECK_OK(barrier_now("between"));
        CHECK_OK(hvd_shutdown());
    }
    init_survivors();
    sum_once(rank, rank, 3);
    sum_once(rank, rank, 3);
    CHECK_OK(hvd_shutdown());
    report_begun(rank);
}

/* Of the survivors' world. */
static void check_calls(int rank, bool shrinks)
{
    const int again = the_case.other_order ? 1 - rank : rank;
    char all[64];

    if (shrinks)
        (void)snprintf(all, sizeof(all), "init %d/3\nshrink %d/3 to 2\n", rank, rank);
    else
        (void)snprintf(all, sizeof(all), "init %d/3\ninit %d/2\n", rank, again);
    assert_string_equal(shared->r[rank].text, all);
}

static void run_worlds(void)
{
    struct proc_world w;

    world_start(&w, 3, worlds_body);
    for (int r = 2; r >= 0; r--)
        stage_wait(r, 1);
    assert_int_equal(kill(w.pid[2], SIGKILL), 0);
    world_end(&w, 2);
}

static void case_run(const char *version, bool shrinks, struct park_case c)
{
    if (!has_kernels())
        return;
    the_case = c;
    use_nccl(version);
    run_worlds();
    /* one that is not revoked in half a second is aborted: a busy machine tries again
     */
    for (int i = 1; i < 5 && shrinks && !strstr(shared->r[0].text, "shrink"); i++)
        run_worlds();
    for (int r = 0; r < 2; r++)
        check_calls(r, shrinks);
}

UNIT_TEST(survivors_shrink_their_communicator)
{
    case_run("22809", true, (struct park_case){0});
    case_run("23007", true, (struct park_case){.is_busy = true});
}

UNIT_TEST(forked_children_leave_it_alone)
{
#ifndef __SANITIZE_THREAD__ /* it cannot follow a child of a process with threads */
    case_run("22809", true, (struct park_case){.has_child = true});
#endif
}

UNIT_TEST(in_another_order_it_is_a_fresh_one)
{
    case_run("22809", false, (struct park_case){.other_order = true});
}

UNIT_TEST(without_revoke_it_is_a_fresh_one)
{
    case_run("22705", false, (struct park_case){.is_busy = true});
}

UNIT_TEST(an_orderly_end_forgets_it)
{
    case_run("22809", false, (struct park_case){.has_between = true});
}

UNIT_MAIN(NULL, NULL)
