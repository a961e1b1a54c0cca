/* SPDX-License-Identifier: Apache-2.0 */
/* An installation without libhvd_cuda.so: tensors on GPUs are refused with the reason,
 * at once and each time, and nothing else changes. */
#include "tests/unit/hvd_world.h"

static int submit_on_device(int device)
{
    float v[1] = {0};
    int64_t n = 1;
    struct hvd_tensor t = tensor_1d("d", HVD_FLOAT32, v, v, &n);
    hvd_handle h;

    t.device = device;
    return hvd_allreduce_async(&t, HVD_SUM, 1, 1, 0, &h);
}

INIT_BODY(no_library)
{
    float v[1] = {2};

    for (int i = 0; i < 2; i++) {
        CHECK_FAILS(submit_on_device(i), HVD_INVALID_ARGUMENT,
                    "this installation cannot: ");
        CHECK(strstr(hvd_last_error(), "/libhvd_cuda.so"), "%s", hvd_last_error());
    }
    CHECK(submit_on_device(HVD_DEVICE_OF_POINTER) == HVD_INVALID_ARGUMENT, "ok");
    CHECK_OK(sum_now("d", v, 1));
    CHECK(v[0] == (float)(2 * size), "%g", (double)v[0]);
}

RANK_BODY(switched_off)
{
    (void)setenv("HVD_GPU", "off", 1);
    CHECK_OK(hvd_init(NULL));
    CHECK_FAILS_AS(submit_on_device(0), HVD_INVALID_ARGUMENT,
                   "tensor \"d\": device 0: HVD_GPU=off");
    CHECK_OK(hvd_shutdown());
}

/* Tensors in host memory may be waited for as those on a GPU. */
INIT_TEST(streams_wait_for_the_host_s_by_the_thread, 2)
{
    float v[1] = {1};
    int device = 0;
    hvd_handle h;

    CHECK_OK(sum_async("x", v, 1, &h));
    CHECK_OK(hvd_wait_on_stream(h, NULL, -1));
    CHECK(hvd_poll(h) == HVD_OK && v[0] == (float)size, "%g", (double)v[0]);
    CHECK_OK(hvd_wait_many(&h, 1, NULL, -1));
    CHECK_OK(hvd_result_device(h, &device));
    CHECK(device == HVD_DEVICE_HOST, "%d", device);
    CHECK_OK(hvd_release(h));
    CHECK(hvd_wait_many(&h, 1, NULL, -1) == HVD_INVALID_ARGUMENT, "released");
    CHECK(hvd_wait_many(NULL, 1, NULL, -1) == HVD_INVALID_ARGUMENT, "NULL");
}

UNIT_TEST(a_tensor_on_a_gpu_is_refused_with_the_reason)
{
    world_run(2, no_library);
    world_run(1, switched_off);
}

UNIT_MAIN(NULL, NULL)
