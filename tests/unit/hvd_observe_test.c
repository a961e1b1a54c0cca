/* SPDX-License-Identifier: Apache-2.0 */
/* What can be seen of whole ranks at work: counters that add up, the end of
 * a timeline (its contents: tests/python/test_timeline.py), the NaN sentinel. */
#include <math.h>

#include "tests/unit/folder.h"
#include "tests/unit/hvd_world.h"
#include "tests/unit/text_count.h"

enum { N = 1000 };

/* --- counters --- */

WORLD_TEST(counters_add_up, 2)
{
    float v[N] = {0};
    struct hvd_stats s;
    struct hvd_tensor t;
    hvd_handle h;
    int64_t n = N;

    CHECK_OK(hvd_init(NULL));
    CHECK(hvd_stats(NULL) == HVD_INVALID_ARGUMENT, "%s", hvd_last_error());
    for (int i = 0; i < 10; i++)
        CHECK_OK(sum_now("a", v, N));
    t = tensor_1d("g", HVD_FLOAT32, v, NULL, &n);
    CHECK_OK(hvd_allgather_async(&t, NULL, NULL, 0, &h));
    CHECK_OK(wait_release(h));
    CHECK_OK(barrier_now("b"));
    /* mismatch: fails everywhere */
    t = tensor_1d("bad", rank == 0 ? HVD_FLOAT32 : HVD_FLOAT64, v, v, &n);
    n = 8;
    CHECK_OK(hvd_allreduce_async(&t, HVD_SUM, 1, 1, 0, &h));
    CHECK(wait_release(h) == HVD_INVALID_ARGUMENT, "%s", hvd_last_error());
    s = stats_now();
    CHECK(s.rank == rank && s.size == size, "%d of %d", s.rank, s.size);
    CHECK(s.tensors[0] == 10, "%d", (int)s.tensors[0]);
    CHECK(s.bytes_in[0] == 10 * N * 4 && s.bytes_out[0] == 10 * N * 4, "%d",
          (int)s.bytes_in[0]);
    CHECK(s.tensors[1] == 1 && s.bytes_in[1] == N * 4
              && s.bytes_out[1] == (uint64_t)size * N * 4,
          "%d %d", (int)s.tensors[1], (int)s.bytes_out[1]);
    CHECK(s.tensors[3] == 1, "%d", (int)s.tensors[3]);
    CHECK(s.failed == 1, "%d", (int)s.failed);
    CHECK(s.batches >= 12 && s.backend_ns > 0 && s.wait_ns > 0, "%d", (int)s.batches);
    CHECK(s.allreduce_bus_bytes == 10 * N * 4 && s.allreduce_bus_bytes_per_s > 0,
          "%d bytes", (int)s.allreduce_bus_bytes); /* 2(n-1)/n is 1 for two ranks */
    CHECK(s.cache_hits + s.cache_misses + s.planned >= 13, "%d %d %d",
          (int)s.cache_hits, (int)s.cache_misses, (int)s.planned);
    CHECK(s.control_sent > 0 && s.control_sent_bytes > s.control_sent, "%d",
          (int)s.control_sent);
    CHECK(s.control_received > 0, "%d", (int)s.control_received);
    CHECK_OK(hvd_shutdown());
    CHECK(hvd_stats(&s) == HVD_NOT_INITIALIZED, "%s", hvd_last_error());
}

static void step_of_four(float *v)
{
    static const char *const names[] = {"w0", "w1", "w2", "w3"};
    hvd_handle h[4];

    for (int i = 0; i < 4; i++)
        CHECK_OK(sum_async(names[i], v + i, 1, &h[i]));
    for (int i = 0; i < 4; i++)
        CHECK_OK(wait_release(h[i]));
}

/* --- waiting for others --- */

static struct { /* of one round, written by its rank */
    uint64_t before_ns, after_ns;
} * submits; /* by rank, shared: around the submission of its last tensor */

/* A rank waits for others from the submission of a batch's last tensor: at least until
 * each other rank submits, at most until the end. The tensors of a group are a batch. */
static void round_with_late_ranks(int rank, int size, const char *group)
{
    float v[2] = {0};
    int64_t n = 1;
    struct hvd_tensor t[2] = {tensor_1d("first", HVD_FLOAT32, &v[0], &v[0], &n),
                              tensor_1d("last", HVD_FLOAT32, &v[1], &v[1], &n)};
    const struct timespec late = {.tv_nsec = (rank + 1) * 5000000L};
    struct hvd_stats a = stats_now(), b;
    uint64_t waited_ns, end_ns;
    hvd_handle h[2];

    for (int i = group ? 0 : 1; i < 2; i++) {
        t[i].group = group;
        t[i].group_size = 2;
        CHECK(i == 0 || nanosleep(&late, NULL) == 0, "%d", errno);
        submits[rank].before_ns = clock_now_ns();
        CHECK_OK(hvd_allreduce_async(&t[i], HVD_SUM, 1, 1, 0, &h[i]));
        submits[rank].after_ns = clock_now_ns();
    }
    for (int i = group ? 0 : 1; i < 2; i++)
        CHECK_OK(wait_release(h[i]));
    end_ns = clock_now_ns();
    b = stats_now();
    waited_ns = b.ready_ns - a.ready_ns;
    CHECK(b.batches - a.batches == 1, "%d", (int)(b.batches - a.batches));
    CHECK(waited_ns > 0 && waited_ns <= end_ns - submits[rank].before_ns, "%d us of %d",
          (int)(waited_ns / 1000), (int)((end_ns - submits[rank].before_ns) / 1000));
    CHECK_OK(barrier_now("all have written"));
    for (int r = 0; r < size; r++)
        CHECK(waited_ns >= after_ns(submits[rank].after_ns, submits[r].before_ns),
              "%d us, rank %d", (int)(waited_ns / 1000), r);
    CHECK_OK(barrier_now("all have read"));
}

INIT_BODY(late_ranks)
{
    for (int i = 0; i < 3; i++)
        round_with_late_ranks(rank, size, "g");
    for (int i = 0; i < 12; i++)
        round_with_late_ranks(rank, size, NULL);
    CHECK(stats_now().planned > 0, "no plan");
}

UNIT_TEST(a_rank_waits_from_its_last_submission)
{
    submits =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(submits, MAP_FAILED);
    world_run(3, late_ranks);
    (void)munmap(submits, 4096);
}

/* The figure that the frozen plan is for: no message about work in 200 steps. */
INIT_TEST(a_steady_loop_sends_nothing, 2)
{
    float v[4] = {0};
    struct hvd_stats a, b;

    for (int i = 0; i < 20; i++)
        step_of_four(v);
    a = stats_now();
    for (int i = 0; i < 200; i++)
        step_of_four(v);
    b = stats_now();
    CHECK(a.plans == 1 && b.plans == 1 && b.plan_leaves == 0, "%d plans, %d left",
          (int)b.plans, (int)b.plan_leaves);
    CHECK(b.planned - a.planned == 800, "%d planned", (int)(b.planned - a.planned));
    CHECK(b.control_sent == a.control_sent && b.control_received == a.control_received,
          "%d sent, %d received", (int)(b.control_sent - a.control_sent),
          (int)(b.control_received - a.control_received));
    CHECK(b.agreements > a.agreements, "%d", (int)b.agreements);
    CHECK(b.steps - a.steps >= 199 && b.steps - a.steps <= 201 && b.steps_per_s > 1,
          "%d steps, %g a second", (int)(b.steps - a.steps), b.steps_per_s);
}

INIT_BODY(text_and_file)
{
    float v[1] = {0};
    char buf[1 << 15], cut[16], path[64];
    size_t n, m;

    CHECK_OK(sum_now("a", v, 1));
    CHECK_OK(hvd_stats_text(buf, sizeof(buf), &n));
    CHECK(n == strlen(buf) && n > 1000, "%zu", n);
    (void)snprintf(cut, sizeof(cut), "{rank=\"%d\"", rank);
    CHECK(strstr(buf, cut) != NULL, "%.200s", buf);
    CHECK(strstr(buf, ",kind=\"allreduce\"} 1\n") != NULL, "%.200s", buf);
    CHECK_OK(hvd_stats_text(cut, sizeof(cut), &m));
    CHECK(strlen(cut) == sizeof(cut) - 1 && strncmp(cut, buf, strlen(cut)) == 0, "%s",
          cut);
    CHECK_OK(hvd_stats_text(NULL, 0, NULL));
    (void)snprintf(path, sizeof(path), "%s/rank.%d", getenv("HVD_STATS_DIR"), rank);
    CHECK(access(path, R_OK) == 0, "%s", path);
}

UNIT_TEST(counters_are_text_and_a_file)
{
    char dir[] = "/tmp/hvd-observe-XXXXXX";

    assert_non_null(mkdtemp(dir));
    (void)setenv("HVD_STATS_DIR", dir, 1);
    world_run(2, text_and_file);
    (void)unsetenv("HVD_STATS_DIR");
    folder_remove(dir);
}

/* --- timeline --- */

static char timeline_path[64];

INIT_BODY(stop_at_once)
{
    float v[1] = {0};
    /* of several: a busy machine may be slow at times; without answers it takes 1 s */
    uint64_t best = UINT64_MAX;

    for (int i = 0; i < 8; i++) {
        uint64_t began;

        CHECK_OK(hvd_timeline_start(timeline_path, 0));
        CHECK_OK(sum_now("g", v, 1));
        began = clock_now_ns();
        CHECK_OK(hvd_timeline_stop());
        if (clock_now_ns() - began < best)
            best = clock_now_ns() - began;
        CHECK_OK(barrier_now("b"));
    }
    CHECK(rank != 0 || best < 900 * NS_PER_MS, "%llu ms",
          (unsigned long long)(best / NS_PER_MS));
}

/* The last events of the other ranks arrive, although no rank submits anything. */
UNIT_TEST(a_stop_waits_for_answers_only)
{
    AUTOFREE char *text = NULL;

    (void)setenv("HVD_TIMELINE_ALL", "1", 1);
    world_run(3, stop_at_once);
    (void)unsetenv("HVD_TIMELINE_ALL");
    assert_int_equal(fd_read_file(timeline_path, 64 << 20, &text, NULL, NULL), 0);
    (void)unlink(timeline_path);
    assert_int_equal(text_count(text, "\"ph\":\"B\""),
                     text_count(text, "\"ph\":\"E\""));
}

/* --- NaN --- */

INIT_BODY(one_has_nan)
{
    const char *given = getenv("HVD_TEST_BAD_RANK");
    int bad = given ? atoi(given) : -1;
    float v[N] = {0};
    char want[160];

    CHECK_OK(sum_now("fine", v, N));
    if (rank == bad) {
        v[17] = NAN;
        v[18] = INFINITY;
    }
    (void)snprintf(want, sizeof(want),
                   "NaN on rank %d (host testhost): element 17 of 1000 in tensor "
                   "\"grad/3\", input of ALLREDUCE (2 such elements; HVD_NANCHECK)",
                   bad);
    CHECK_KEPT(sum_now("grad/3", v, N), HVD_ABORTED, want);
}

UNIT_TEST(nan_names_rank_and_tensor_everywhere)
{
    (void)setenv("HVD_NANCHECK", "1", 1);
    (void)setenv("HVD_TEST_BAD_RANK", "1", 1);
    world_run(3, one_has_nan);
    (void)setenv("HVD_TEST_BAD_RANK", "0", 1);
    world_run(3, one_has_nan);
    (void)unsetenv("HVD_NANCHECK");
}

INIT_BODY(nan_passes)
{
    float v[2] = {rank == 0 ? NAN : 1, 1};
    int64_t n = 2;
    struct hvd_tensor t = tensor_1d("b", HVD_FLOAT32, v, v, &n);
    hvd_handle h;

    if (getenv("HVD_NANCHECK")) { /* what is not read does not count */
        CHECK_OK(hvd_broadcast_async(&t, size - 1, 0, &h));
        CHECK_OK(wait_release(h));
        CHECK(v[0] == 1, "%g", (double)v[0]);
    } else {
        CHECK_OK(sum_now("a", v, 2));
        CHECK(isnan(v[0]) && v[1] == (float)size, "%g %g", (double)v[0], (double)v[1]);
    }
}

UNIT_TEST(without_the_check_nan_passes)
{
    world_run(2, nan_passes);
    (void)setenv("HVD_NANCHECK", "1", 1);
    world_run(2, nan_passes);
    (void)unsetenv("HVD_NANCHECK");
}

/* --- variables --- */

WORLD_TEST(garbage_in_a_variable_ends_init, 2)
{
    (void)setenv("HOROVOD_CYCLE_TIME", "(None,)", 1);
    CHECK_FAILS(hvd_init(NULL), HVD_INVALID_ARGUMENT,
                "HOROVOD_CYCLE_TIME: \"(None,)\"");
    (void)setenv("HOROVOD_CYCLE_TIME", "1", 1);
    (void)setenv("HOROVOD_ELASTIC", "1", 1);
    CHECK_FAILS(hvd_init(NULL), HVD_INVALID_ARGUMENT, "HOROVOD_ELASTIC=1: ");
    (void)unsetenv("HOROVOD_ELASTIC");
    (void)setenv("HOROVOD_THREAD_AFFINITY", "0", 1);
    if (rank == 1)
        CHECK(hvd_init(NULL) == HVD_INVALID_ARGUMENT, "no error");
    (void)setenv("HOROVOD_THREAD_AFFINITY", "0,0", 1);
    CHECK_OK(hvd_init(NULL));
    CHECK_OK(barrier_now("b"));
    CHECK_OK(hvd_shutdown());
}

int main(void)
{
    (void)snprintf(timeline_path, sizeof(timeline_path), "/tmp/hvd-observe-%d.json",
                   (int)getpid());
    return unit_run(NULL, NULL);
}
