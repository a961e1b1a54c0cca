/* SPDX-License-Identifier: Apache-2.0 */
/* What users can observe of GPU tensors through hvd.h, on the fakes: the timeline's
 * names, HVD_DRY_RUN, and HVD_NANCHECK. */
#include "tests/unit/hvdgpu_world.h"

enum { N = 1000 };

static char path[64];

/* --- timeline --- */

RANK_BODY(is_drawn)
{
    float *v, *w;
    hvd_handle h[8];

    CHECK_OK(hvd_init(NULL));
    v = floats_on_gpu(rank, N);
    w = floats_on_gpu(rank, N);
    for (int i = 0; i < 8; i++) { /* names come again before the GPU is done */
        CHECK_OK(sum_on_gpu(rank, "g", i % 2 ? v : w, N, 0, &h[i]));
        CHECK_OK(hvd_wait_on_stream(h[i], NULL, -1));
    }
    for (int i = 0; i < 8; i++)
        CHECK_OK(wait_release(h[i]));
    CHECK_OK(hvd_shutdown());
}

static unsigned n_of(const char *text, const char *what)
{
    unsigned n = 0;

    for (const char *p = text; (p = strstr(p, what)); p += strlen(what))
        n++;
    return n;
}

UNIT_TEST(the_timeline_has_nccl_s_names)
{
    struct err err = ERR_INIT;
    AUTOFREE char *text = NULL;

    (void)snprintf(path, sizeof(path), "/tmp/hvdgpu_observe_test.%d", (int)getpid());
    (void)setenv("HOROVOD_TIMELINE", path, 1);
    gpu_world_run("22705", 2, is_drawn);
    (void)unsetenv("HOROVOD_TIMELINE");
    assert_int_equal(fd_read_file(path, 1 << 20, &text, NULL, &err), 0);
    (void)unlink(path);
    assert_int_equal(n_of(text, "\"INIT_NCCL\""), 1);
    assert_int_equal(n_of(text, "\"NCCL_ALLREDUCE\""), 8);
    assert_true(strstr(text, "\"INIT_NCCL\"") < strstr(text, "\"NCCL_ALLREDUCE\""));
    assert_int_equal(n_of(text, "\"CPU_ALLREDUCE\""), 0);
    assert_int_equal(n_of(text, "\"ph\":\"B\""), n_of(text, "\"ph\":\"E\""));
}

/* --- which rank is late --- */

static int gpu_compute(void *arg)
{
    unsigned us;

    memcpy(&us, arg, sizeof(us));
    (void)usleep(us);
    return 0;
}

/* The hosts are equal: both submit at once and wait for the end. What differs is the work
 * in the stream before the tensor. */
GPU_WORLD_TEST(a_rank_whose_gpu_is_late_waits_less, 2)
{
    enum { STEPS = 10, MS = 1000 };
    const unsigned us = rank == 0 ? 5 * MS : 150 * MS;
    void *lib = dlopen(CUDA_LIBRARY, RTLD_NOW);
    int (*enqueue)(cu_stream s, int (*fn)(void *arg), const void *arg, size_t bytes);
    int (*stream_new)(cu_stream * ret, unsigned flags, int priority);
    struct hvd_tensor t;
    int64_t n = N;
    uint64_t ms;
    cu_stream s;
    hvd_handle h;

    CHECK_OK(hvd_init(NULL));
    t = tensor_1d("g", HVD_FLOAT32, NULL, NULL, &n);
    t.data = t.output = floats_on_gpu(rank, N);
    t.device = rank;
    *(void **)&enqueue = dlsym(lib, "hvd_fake_enqueue");
    *(void **)&stream_new = dlsym(lib, "cuStreamCreateWithPriority");
    CHECK(stream_new(&s, CU_STREAM_NON_BLOCKING, 0) == 0, "no stream");
    t.stream = s;
    for (int i = 0; i < STEPS; i++) {
        CHECK(enqueue(s, gpu_compute, &us, sizeof(us)) == 0, "no work");
        CHECK_END(hvd_allreduce_async(&t, HVD_SUM, 1, 1, 0, &h));
    }
    CHECK_OK(sum_now("the counter is complete", &(float){1}, 1));
    ms = stats_now().ready_ns / (MS * MS);
    if (rank == 0) /* about 145 ms a step; less if its own work is late, too */
        CHECK(ms > STEPS * 50, "%d ms", (int)ms);
    else
        CHECK(ms < STEPS * 50, "%d ms", (int)ms);
    CHECK_OK(hvd_shutdown());
}

/* --- dry run --- */

/* A step of an average to another tensor, which NCCL would move directly, two small ones
 * in place, and a reducescatter with unequal shares. True: the results are the own inputs;
 * otherwise all of them are real. */
static bool step_is_dry(int rank, float *big, float *out, float *small, float *part)
{
    int64_t n = 300000, rows = 5;
    struct hvd_tensor t = tensor_1d("big", HVD_FLOAT32, big, out, &n);
    struct hvd_tensor s = tensor_1d("part", HVD_FLOAT32, part, NULL, &rows);
    const float own = (float)rank + 1, mean = 1.5f, sum = 3;
    const int first = rank == 0 ? 0 : 3; /* 3 rows and 2 */
    hvd_handle h[4];
    bool is_dry;
    void *result;
    float got;
    int ndim;

    t.device = s.device = rank;
    big[0] = big[n - 1] = small[0] = small[16] = own;
    for (int i = 0; i < rows; i++)
        part[i] = own + (float)i;
    CHECK_OK(hvd_allreduce_async(&t, HVD_AVERAGE, 1, 1, 0, &h[0]));
    CHECK_OK(sum_on_gpu(rank, "s1", small, 16, 0, &h[1]));
    CHECK_OK(sum_on_gpu(rank, "s2", small + 16, 16, 0, &h[2]));
    CHECK_OK(hvd_reducescatter_async(&s, HVD_SUM, 1, 1, NULL, NULL, 0, &h[3]));
    CHECK_OK(hvd_wait(h[3], -1));
    CHECK_OK(hvd_result(h[3], &result, &ndim, &rows));
    got = *(const float *)result;
    for (int i = 0; i < 4; i++)
        CHECK_OK(wait_release(h[i]));
    is_dry = out[0] == own;
    CHECK(out[0] == (is_dry ? own : mean) && out[n - 1] == out[0], "%g",
          (double)out[0]);
    CHECK(small[0] == (is_dry ? own : sum) && small[16] == small[0], "%g",
          (double)small[0]);
    CHECK(got == (is_dry ? own + (float)first : sum + 2 * (float)first), "%g",
          (double)got);
    return is_dry;
}

GPU_WORLD_TEST(dry_steps_keep_the_own_input_on_the_gpu, 2)
{
    float *big, *out, *small, *part, n_dry = 0;

    (void)setenv("HVD_DRY_RUN", "1", 1);
    CHECK_OK(hvd_init(NULL));
    big = floats_on_gpu(rank, 300000);
    out = floats_on_gpu(rank, 300000);
    small = floats_on_gpu(rank, 32);
    part = floats_on_gpu(rank, 16);
    memset(small, 0, 32 * sizeof(float));
    for (int i = 0; i < 60; i++)
        n_dry += step_is_dry(rank, big, out, small, part) ? 1 : 0;
    CHECK(n_dry >= 10 && n_dry <= 30, "%g", (double)n_dry);
    CHECK_OK(hvd_shutdown());
}

/* --- NaN --- */

GPU_WORLD_TEST(a_nan_is_named_on_all_ranks, 3)
{
    float *v;
    hvd_handle h;

    (void)setenv("HVD_NANCHECK", "1", 1);
    CHECK_OK(hvd_init(NULL));
    v = floats_on_gpu(rank, N);
    memset(v, 0, N * sizeof(*v));
    CHECK_OK(sum_gpu_now(rank, "well", v, N, 0));
    if (rank == 1)
        v[70] = v[999] = v[0] / v[1];
    CHECK_OK(sum_on_gpu(rank, "n", v, N, 0, &h));
    if (rank == 1)
        CHECK(hvd_wait_on_stream(h, NULL, -1) == HVD_ABORTED /* it would be too late */
                  && wait_release(h) == HVD_ABORTED,
              "ok");
    else /* its own part may have ended well; what comes next has not */
        CHECK(wait_release(h) != HVD_OK || sum_now("next", v, 1) == HVD_ABORTED, "ok");
    CHECK(strstr(shared->r[rank].text, "NaN on rank 1 (host testhost): element 70 of "
                                       "1000 in tensor \"n\", input of ALLREDUCE (2 "
                                       "such elements; HVD_NANCHECK)"),
          "%s", shared->r[rank].text);
    CHECK_OK(hvd_shutdown());
}

UNIT_MAIN(NULL, NULL)
