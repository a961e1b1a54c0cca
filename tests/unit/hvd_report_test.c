/* SPDX-License-Identifier: Apache-2.0 */
/* HVD_REPORT and HVD_DRY_RUN in whole worlds: what rank 0 prints, which steps
 * communicate. The sentences: core_report_test.c. */
#include <time.h>

#include "tests/unit/hvd_tree.h"
#include "tests/unit/hvd_world.h"

enum { N = 25000, SLOW_RANK = 1 };

static char printed[8192]; /* by this rank */
static int printed_fd;

/* The variable on rank 0 only: its value counts. */
static void report_init(const char *variable, int rank)
{
    printed_fd = memfd_create("stderr", MFD_CLOEXEC);
    CHECK(printed_fd >= 0 && dup2(printed_fd, STDERR_FILENO) >= 0, "%s",
          strerror(errno));
    (void)setenv(variable, rank == 0 ? "1" : "0", 1);
    CHECK_OK(hvd_init(NULL));
}

static void report_read(void)
{
    ssize_t n = pread(printed_fd, printed, sizeof(printed) - 1, 0);

    CHECK(n >= 0, "%s", strerror(errno));
    printed[n] = 0;
}

static int count_in(const char *text, const char *part)
{
    int n = 0;

    for (; (text = strstr(text, part)); text++)
        n++;
    return n;
}

#define CHECK_PRINTED(part, times)                                                     \
    CHECK(count_in(printed, part) == (times), "%s", printed)

/* Two tensors of 100 kB each. */
static void step_of_two(float *a, float *b)
{
    hvd_handle h[2];

    CHECK_OK(sum_async("a", a, N, &h[0]));
    CHECK_OK(sum_async("b", b, N, &h[1]));
    for (int i = 0; i < 2; i++)
        CHECK_OK(wait_release(h[i]));
}

static float a[N], b[N];

/* Works for 20 ms, and longer on a busy machine than the last step took after it. */
static void rank_work(uint64_t step_ns)
{
    const struct timespec t = clock_timespec(20 * NS_PER_MS + 4 * step_ns);

    (void)nanosleep(&t, NULL);
}

RANK_BODY(slow_rank)
{
    uint64_t began_ns, step_ns = 0;
    unsigned steps = 0, percent = 0;
    struct hvd_stats s;

    report_init("HVD_REPORT", rank);
    for (int i = 0; i < 30; i++) {
        if (rank == SLOW_RANK)
            rank_work(step_ns);
        began_ns = clock_now_ns();
        step_of_two(a, b);
        step_ns = clock_now_ns() - began_ns;
    }
    s = stats_now();
    /* The slow rank is never waited for; 20 ms less the work of the other ranks. */
    CHECK(rank == SLOW_RANK || s.blocked_ns > 30 * 10000000ull, "%llu ns",
          (unsigned long long)s.blocked_ns);
    CHECK(s.blocked_ns < s.age_ns, "%llu ns", (unsigned long long)s.blocked_ns);
    CHECK_OK(hvd_shutdown());
    report_read();
    if (rank != 0) {
        CHECK_PRINTED("horovod", 0);
        return;
    }
    CHECK_PRINTED("horovod: report: ", 4);
    CHECK(sscanf(printed, "horovod: report: %u steps of %*f ms; %*f ms (%u %%)", &steps,
                 &percent)
                  == 2
              && steps == s.steps && steps >= 20 && percent > 0 && percent < 100,
          "%u steps: %s", steps, printed);
    CHECK_PRINTED("200 kB per step and rank; bus bandwidth", 1);
    CHECK_PRINTED("rank 1 (host testhost) was the slowest", 1);
    CHECK_PRINTED("advice: the ranks wait for rank 1", 1);
    CHECK_PRINTED("missing", 0);
}

/* In the tree the totals of ranks 3 to 5 pass through ranks that have ended before. */
TREE_TEST(the_slow_rank_is_named)
{
    world_run(n_ranks, slow_rank);
}

/* All ranks leave in any order, most of them without waiting for the other ranks. */
RANK_BODY(early_leaver)
{
    report_init("HVD_REPORT", rank);
    step_of_two(a, b);
    if (rank == 0) {
        stage_set(0, 1);
        go_wait(1);
    }
    CHECK_OK(hvd_shutdown());
    report_read();
    CHECK_PRINTED("horovod: report: ", rank == 0 ? 4 : 0);
    CHECK_PRINTED("missing", 0);
    stage_set(rank, 2);
}

UNIT_TEST(rank_0_may_leave_last)
{
    struct proc_world w;

    world_start(&w, 3, early_leaver);
    stage_wait(0, 1);
    stage_wait(1, 2);
    stage_wait(2, 2);
    go_set(1);
    world_end(&w, -1);
}

RANK_BODY(lost_rank)
{
    float v = 1;

    report_init("HVD_REPORT", rank);
    step_of_two(a, b);
    stage_set(rank, 1);
    go_wait(1);
    if (rank == 2)
        (void)pause();
    CHECK(sum_now("late", &v, 1) == HVD_ABORTED, "%s", hvd_last_error());
    report_read(); /* now: a launcher may kill this rank at any time */
    CHECK_PRINTED("horovod: report: the job ended early: rank 2 (host testhost, pid ",
                  rank == 0);
    CHECK_PRINTED("the totals of 2 of 3 ranks are missing, the first is rank 1",
                  rank == 0);
    CHECK_PRINTED("report: no steps", rank == 0);
    CHECK_OK(hvd_shutdown());
    report_read();
    CHECK_PRINTED("advice", rank == 0); /* once */
}

UNIT_TEST(a_lost_rank_leaves_what_rank_0_knows)
{
    world_run_kill(3, lost_rank, 2);
}

RANK_BODY(failed_program)
{
    report_init("HVD_REPORT", rank);
    step_of_two(a, b);
    if (rank == 1)
        CHECK_OK(hvd_set_exit_cause("ValueError: bad batch", 1));
    CHECK_OK(hvd_shutdown());
    report_read();
    CHECK_PRINTED("missing", 0);
    /* Rank 0 may have left before. */
    CHECK(rank > 0 || count_in(printed, "advice") == 1, "%s", printed);
}

UNIT_TEST(a_failed_program_has_a_whole_report)
{
    world_run(3, failed_program);
}

/* --- dry run --- */

/* A step of sums, a broadcast and a reducescatter of seven rows: 3, 2 and 2. True: without
 * communication. */
static bool step_is_dry(int rank, int size)
{
    static const int first_row[] = {0, 3, 5};
    float one = 1, x[3] = {1, 1, 1}, root = (float)rank + 5, rows[7], got;
    int64_t n_root = 1, n_rows = 7;
    struct hvd_tensor t = tensor_1d("root", HVD_FLOAT32, &root, &root, &n_root);
    struct hvd_tensor s = tensor_1d("rows", HVD_FLOAT32, rows, NULL, &n_rows);
    hvd_handle h[4];
    void *result;
    bool is_dry;
    int ndim;

    for (int i = 0; i < 7; i++)
        rows[i] = (float)i;
    CHECK_OK(sum_async("one", &one, 1, &h[0]));
    CHECK_OK(hvd_broadcast_async(&t, 0, 0, &h[1]));
    CHECK_OK(sum_async("x", x, 3, &h[2]));
    CHECK_OK(hvd_reducescatter_async(&s, HVD_SUM, 1, 1, NULL, NULL, 0, &h[3]));
    CHECK_OK(hvd_wait(h[3], -1));
    CHECK_OK(hvd_result(h[3], &result, &ndim, &n_rows));
    got = *(const float *)result;
    for (int i = 0; i < 4; i++)
        CHECK_OK(wait_release(h[i]));
    is_dry = one == 1;
    CHECK(root == 5, "broadcast is %g", (double)root);
    CHECK(is_dry || one == (float)size, "%g", (double)one);
    CHECK(x[0] == one && x[2] == one, "%g %g", (double)one, (double)x[0]);
    CHECK(got == one * (float)first_row[rank], "%g", (double)got);
    return is_dry;
}

WORLD_TEST(dry_steps_keep_the_own_input, 3)
{
    int n_dry = 0, changes = 0, was_dry = 0;
    float mine = 7;

    report_init("HVD_DRY_RUN", rank);
    for (int i = 0; i < 60; i++) {
        int is_dry = step_is_dry(rank, size);

        n_dry += is_dry;
        changes += is_dry != was_dry;
        was_dry = is_dry;
    }
    CHECK(n_dry >= 20 && n_dry <= 30 && changes >= 4, "%d dry, %d changes", n_dry,
          changes);
    /* All ranks changed at the same step, and what is not part of the plan is real. */
    mine = (float)n_dry;
    CHECK_OK(sum_now("check", &mine, 1));
    CHECK(mine == (float)(n_dry * size), "%g", (double)mine);
    CHECK_OK(hvd_shutdown());
    report_read();
    CHECK_PRINTED("the trained weights are useless", rank == 0);
    CHECK_PRINTED("horovod: report: dry run: a step takes ", rank == 0);
    CHECK_PRINTED(" of a step\n", rank == 0);
    CHECK_PRINTED("horovod: report: advice: ", rank == 0);
}

UNIT_MAIN(NULL, NULL)
