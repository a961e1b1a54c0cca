/* SPDX-License-Identifier: Apache-2.0 */
/* A world ends while the program has long work in front of a tensor: the operation ends
 * after that work, not before, and the next world can use the GPU. */
#include "tests/unit/hvdgpu_world.h"

enum { N = 100, HELD_S = 5 }; /* more than the limits of a failure and a shutdown */

/* Keeps a stream of the program busy. */
static struct gate {
    _Atomic bool is_open;
    cu_stream stream;
} gate;

static int gate_wait(void *arg)
{
    while (!atomic_load(&gate.is_open))
        (void)usleep(1000);
    return 0;
}

static void gate_close(void)
{
    void *lib = dlopen(CUDA_LIBRARY, RTLD_NOW);
    int (*enqueue)(cu_stream s, int (*fn)(void *arg), const void *arg, size_t bytes);
    int (*stream_new)(cu_stream * ret, unsigned flags, int priority);

    *(void **)&enqueue = dlsym(lib, "hvd_fake_enqueue");
    *(void **)&stream_new = dlsym(lib, "cuStreamCreateWithPriority");
    CHECK(stream_new(&gate.stream, CU_STREAM_NON_BLOCKING, 0) == 0, "no stream");
    CHECK(enqueue(gate.stream, gate_wait, "", 1) == 0, "no gate");
}

/* fd: of catch_stderr. */
static bool is_logged(int fd, const char *words)
{
    char text[4096] = "";

    CHECK(pread(fd, text, sizeof(text) - 1, 0) >= 0, "%d", errno);
    return strstr(text, words) != NULL;
}

static bool is_waiting(int fd)
{
    return is_logged(fd, "waiting for that work rank=0 limit_s=60");
}

/* Rank 0 has shut down: not too early, and nothing was left behind. */
static void check_end(int fd)
{
    CHECK(atomic_load(&gate.is_open), "shut down before");
    CHECK(!is_logged(fd, "did not stop"), "something did not stop");
}

static void *gate_open_late(void *arg)
{
    while (!is_waiting((int)(intptr_t)arg))
        (void)usleep(1000);
    (void)sleep(HELD_S);
    atomic_store(&gate.is_open, true);
    return NULL;
}

static void gate_open_beside(int fd)
{
    pthread_t thread;

    CHECK(pthread_create(&thread, NULL, gate_open_late, (void *)(intptr_t)fd) == 0
              && pthread_detach(thread) == 0,
          "no thread");
}

static void sum_once(int rank, float sum)
{
    float *v = floats_on_gpu(rank, N);

    v[N - 1] = (float)(rank + 1);
    CHECK_OK(sum_gpu_now(rank, "x", v, N, 0));
    CHECK(v[N - 1] == sum, "%g, not %g", (double)v[N - 1], (double)sum);
}

/* Is posted when it returns. On rank 0 it is behind the gate. */
static void sum_behind(int rank, hvd_handle *h)
{
    float *v = floats_on_gpu(rank, N);
    const int64_t n = N;
    struct hvd_tensor t = tensor_1d("behind", HVD_FLOAT32, v, v, &n);

    t.device = rank;
    if (rank == 0) {
        gate_close();
        t.stream = gate.stream;
    }
    CHECK_OK(hvd_allreduce_async(&t, HVD_SUM, 1, 1, 0, h));
    CHECK_OK(hvd_wait_on_stream(*h, t.stream, -1));
}

static void next_world(int rank, const int *ranks, int n, float sum)
{
    struct hvd_config c = {.size_bytes = sizeof(c),
                           .start_timeout_ms = 20000,
                           .ranks = ranks,
                           .n_ranks = n};

    CHECK_OK(hvd_init(&c));
    sum_once(rank, sum);
    CHECK_OK(hvd_shutdown());
}

/* Rank 2 is killed. */
static bool leaves_early; /* rank 0 shuts down instead of waiting */

RANK_BODY(lost_body)
{
    static const int left[] = {0, 1};
    hvd_handle h;
    int fd = -1;

    CHECK_OK(hvd_init(NULL));
    sum_once(rank, 6);
    if (rank == 0)
        fd = catch_stderr();
    sum_behind(rank, &h);
    stage_set(rank, 1);
    if (rank == 2)
        (void)pause();
    while (rank == 0 && !is_waiting(fd)) {
        CHECK(hvd_poll(h) == HVD_IN_PROGRESS, "it has ended: %d", hvd_poll(h));
        (void)usleep(1000);
    }
    if (rank == 0 && leaves_early)
        gate_open_beside(fd);
    else
        atomic_store(&gate.is_open, true);
    if (!leaves_early)
        CHECK_KEPT(wait_release(h), HVD_ABORTED, "rank 2");
    CHECK_OK(hvd_shutdown());
    if (rank == 0)
        check_end(fd);
    next_world(rank, left, 2, 3);
}

static void run_lost(void)
{
    if (!has_kernels())
        skip();
    use_nccl("22705");
    world_run_kill(3, lost_body, 2);
}

UNIT_TEST(a_failure_waits_for_work_of_the_program)
{
    leaves_early = false;
    run_lost();
}

UNIT_TEST(a_shutdown_waits_for_a_failure_that_waits)
{
    leaves_early = true;
    run_lost();
}

GPU_WORLD_TEST(an_orderly_end_waits_for_work_of_the_program, 2)
{
    hvd_handle h;
    int fd = -1;

    CHECK_OK(hvd_init(NULL));
    sum_once(rank, 3);
    sum_behind(rank, &h);
    CHECK_OK(barrier_now("all have posted"));
    if (rank == 0)
        gate_open_beside(fd = catch_stderr());
    CHECK_OK(hvd_shutdown());
    CHECK(hvd_poll(h) == HVD_PRECONDITION, "status %d", hvd_poll(h));
    if (rank == 0)
        check_end(fd);
    next_world(rank, NULL, 0, 3);
}

UNIT_MAIN(NULL, NULL)
