/* SPDX-License-Identifier: Apache-2.0 */
/* HVD_STREAM_ALL, which TensorFlow's operations use: a stream that the runtime does not
 * get fills the input by slow work. The sum is right only if the runtime waits for all
 * streams. TensorFlow itself on this driver: tests/python/test_tensorflow_gpu.py. */
#include "tests/unit/hvdgpu_world.h"

enum { N = 5, SLOW_US = 20000 };

static int input_fill(void *arg)
{
    float *to;

    memcpy(&to, arg, sizeof(to));
    (void)usleep(SLOW_US); /* the slow work */
    for (int i = 0; i < N; i++)
        to[i] = 1;
    return 0;
}

RANK_BODY(sums_late_inputs)
{
    int (*enqueue)(cu_stream s, int (*fn)(void *arg), const void *arg, size_t bytes);
    float *v = floats_on_gpu(rank, N);
    const int64_t n = N;
    struct hvd_tensor t = tensor_1d("x", HVD_FLOAT32, v, v, &n);
    struct err err = ERR_INIT;
    struct cuda_api cu;
    cu_stream stream;
    hvd_handle h;

    t.device = rank;
    t.stream = HVD_STREAM_ALL;
    CHECK(cuda_load(CUDA_LIBRARY, &cu, &err) == 0, "%s", err.text);
    *(void **)&enqueue =
        dlsym(dlopen(CUDA_LIBRARY, RTLD_NOW | RTLD_NOLOAD), "hvd_fake_enqueue");
    CHECK(enqueue && cu.stream_new(&stream, CU_STREAM_NON_BLOCKING, 0) == 0,
          "no stream");
    CHECK_OK(hvd_init(NULL));
    for (int step = 0; step < 3; step++) {
        memset(v, 0, N * sizeof(*v));
        CHECK(enqueue(stream, input_fill, &v, sizeof(v)) == 0, "no work");
        CHECK_OK(hvd_allreduce_async(&t, HVD_SUM, 1, 1, 0, &h));
        CHECK_OK(wait_release(h));
        CHECK(v[N - 1] == (float)size, "step %d: %g", step, (double)v[N - 1]);
    }
    CHECK_OK(hvd_shutdown());
}

static void case_run(const char *cuda, const char *ready)
{
    (void)setenv("HVD_FAKE_CUDA", cuda, 1);
    (void)setenv("HVD_GPU_READY", ready, 1);
    gpu_world_run("22705", 2, sums_late_inputs);
    (void)unsetenv("HVD_FAKE_CUDA");
    (void)unsetenv("HVD_GPU_READY");
}

UNIT_TEST(all_streams_are_waited_for_by_one_event)
{
    case_run("12050", "auto");
}

UNIT_TEST(all_streams_are_waited_for_by_older_drivers)
{
    case_run("12040", "auto");
}

UNIT_TEST(all_streams_are_waited_for_where_the_user_requests_it)
{
    case_run("12050", "sync");
}

UNIT_MAIN(NULL, NULL)
