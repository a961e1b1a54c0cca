/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors on a GPU through the C API, on a device in memory (fake_device.h): streams
 * before and after them, batches that are in progress for long, and what happens to
 * them at each end of a world. Values: gpu_matrix_test, and the stage matrix of
 * tests/gpu. */
#include "tests/unit/hvd_world.h"

#include "runtime/engine/flight.h"
#include "tests/unit/hvd_gpu.h"

/* --- streams --- */

WORLD_TEST(a_stream_waits_instead_of_the_thread, 2)
{
    float v[4] = {1, 1, 1, 1};
    hvd_handle h, again;

    CHECK_OK(hvd_init(NULL));
    CHECK_OK(sum_on_gpu("first", v, 4, &h)); /* opens the device */
    CHECK_OK(wait_release(h));
    fake_hold();
    v[0] = (float)rank;
    CHECK_OK(sum_on_gpu("x", v, 4, &h));
    CHECK_OK(hvd_wait_on_stream(h, (void *)(uintptr_t)7, -1));
    CHECK(fake.n_waits == 1 && fake.last_wait_stream == (void *)(uintptr_t)7,
          "%d waits", (int)fake.n_waits);
    CHECK(hvd_poll(h) == HVD_IN_PROGRESS, "it has ended");
    CHECK(hvd_wait(h, 20) == HVD_TIMEOUT, "it has ended");
    /* The next step has the same name before the GPU is done. */
    CHECK_OK(sum_on_gpu("x", v, 4, &again));
    CHECK_OK(hvd_wait_on_stream(again, STREAM, -1));
    CHECK_OK(hvd_release(again));
    fake_let(3);
    CHECK_OK(hvd_wait(h, -1));
    CHECK_OK(hvd_wait_on_stream(h, STREAM, -1)); /* nothing to wait for is fine */
    CHECK_OK(hvd_release(h));
    CHECK(v[0] == (float)(size * size * (size - 1) / 2), "%g", (double)v[0]);
    CHECK_OK(hvd_shutdown());
    CHECK(fake.n_events == 0, "%d events are left", (int)fake.n_events);
}

INIT_TEST(one_event_and_one_wait_serve_a_bucket, 2)
{
    enum { N = 20 };
    float v[N][2];
    hvd_handle h[N];
    int n_records;

    for (int i = 0; i < N; i++) {
        char name[16];
        int64_t n = 2;
        struct hvd_tensor t = on_gpu(name, HVD_FLOAT32, v[i], v[i], &n);

        (void)snprintf(name, sizeof(name), "t%d", i);
        v[i][0] = v[i][1] = (float)i;
        t.is_held = 1;
        t.group = "all";
        t.group_size = N;
        CHECK_OK(hvd_allreduce_async(&t, HVD_SUM, 1, 1, 0, &h[i]));
    }
    n_records = fake.n_records;
    CHECK_OK(hvd_submit_held(h, N));
    CHECK(fake.n_records == n_records + 1, "%d events", (int)fake.n_records);
    CHECK_OK(hvd_wait_many(h, N, STREAM, -1));
    CHECK(fake.n_batches == 1 && fake.n_items_last == N, "%d batches",
          (int)fake.n_batches);
    CHECK(fake.n_waits <= 1, "%d waits", (int)fake.n_waits);
    for (int i = 0; i < N; i++) {
        CHECK_OK(hvd_release(h[i]));
        CHECK(v[i][1] == (float)(i * size), "%g", (double)v[i][1]);
    }
}

INIT_BODY(a_captured_stream_is_refused)
{
    float v[1] = {0};
    int64_t n = 1;
    struct hvd_tensor t = on_gpu("c", HVD_FLOAT32, v, v, &n);
    hvd_handle h;

    t.stream = FAKE_CAPTURED;
    CHECK_FAILS_AS(hvd_allreduce_async(&t, HVD_SUM, 1, 1, 0, &h), HVD_INVALID_ARGUMENT,
                   "tensor \"c\": its stream is being captured");
}

/* The background thread, which runs steps while no thread waits. */
INIT_TEST(naps_of_the_background_thread_end_on_time, 1)
{
    const int slack_ns = prctl(PR_GET_TIMERSLACK);
    float v[1] = {1};
    hvd_handle h;

    CHECK_OK(sum_on_gpu("x", v, 1, &h));
    while (hvd_poll(h) == HVD_IN_PROGRESS)
        (void)usleep(1000);
    CHECK_OK(hvd_release(h));
    CHECK(fake.seat_slack_ns == 1, "%d ns", (int)fake.seat_slack_ns);
    CHECK(prctl(PR_GET_TIMERSLACK) == slack_ns && slack_ns > 1, "%d ns", slack_ns);
}

/* --- results --- */

static void *no_memory(void *arg, int ndim, const int64_t *shape, size_t bytes)
{
    (void)ndim;
    (void)shape;
    (void)bytes;
    return arg;
}

WORLD_TEST(memory_of_results_is_the_caller_s_or_the_device_s, 2)
{
    float v[2] = {(float)rank, 1}, all[4] = {0};
    int64_t n = 2;
    struct hvd_tensor t = on_gpu("g", HVD_FLOAT32, v, NULL, &n);
    int n_records;
    hvd_handle h;

    CHECK_OK(hvd_init(NULL));
    /* The caller's memory may be in use in the stream until it has given it. */
    CHECK_OK(hvd_allgather_async(&t, no_memory, all, 0, &h));
    CHECK_OK(wait_release(h));
    CHECK(all[2] == 1 && fake.n_allocs == 0, "%g", (double)all[2]);
    CHECK(fake.n_records == 2, "%d events", (int)fake.n_records);
    n_records = fake.n_records;
    CHECK_OK(hvd_allgather_async(&t, rank == 0 ? no_memory : NULL, NULL, 0, &h));
    CHECK(wait_release(h) == (rank == 0 ? HVD_NO_MEMORY : HVD_OK), "rank %d", rank);
    CHECK(fake.n_records == n_records + 1 && fake.n_allocs == 1, "%d allocations",
          (int)fake.n_allocs);
    CHECK(fake.n_frees == 1 && fake.n_given == 1, "%d", (int)fake.n_frees);
    CHECK_OK(hvd_shutdown());
    CHECK(fake.n_events == 0, "%d events are left", (int)fake.n_events);
}

/* --- which device --- */

static int submit_refused(struct hvd_tensor *t)
{
    hvd_handle h;

    return hvd_allreduce_async(t, HVD_SUM, 1, 1, 0, &h);
}

INIT_BODY(one_device_a_rank)
{
    float v[1] = {0};
    uint8_t foreign[4] = {0xee};
    int64_t n = 1, none = 0;
    struct hvd_tensor t = on_gpu("d", HVD_FLOAT32, v, v, &n);
    struct hvd_tensor e = on_gpu("e", HVD_FLOAT32, NULL, NULL, &none);
    hvd_handle h;

    e.device = HVD_DEVICE_OF_POINTER;
    CHECK_OK(hvd_allreduce_async(&e, HVD_SUM, 1, 1, 0, &h)); /* that of the rank */
    CHECK_OK(wait_release(h));
    CHECK(fake.device.config.init_timeout_ns
              == 600 * NS_PER_S + (unsigned)size * 100 * NS_PER_MS,
          "%llu", (unsigned long long)fake.device.config.init_timeout_ns);
    t.device = 1;
    CHECK_FAILS_AS(submit_refused(&t), HVD_INVALID_ARGUMENT,
                   "tensor \"d\": device 1: it is on GPU 1, but this rank uses "
                   "GPU 0: a rank uses one GPU only");
    t.device = HVD_DEVICE_OF_POINTER;
    t.data = foreign;
    CHECK_FAILS(submit_refused(&t), HVD_INVALID_ARGUMENT, "its memory is not on a GPU");
    t.device = HVD_DEVICE_NONE - 1;
    CHECK(submit_refused(&t) == HVD_INVALID_ARGUMENT, "ok");
    t = on_gpu("d", HVD_FLOAT32, v, v, &n);
    t.ready_event = v;
    CHECK(submit_refused(&t) == HVD_INVALID_ARGUMENT, "ok");
}

RANK_BODY(no_device)
{
    float v[1] = {3};
    int64_t n = 1;
    struct hvd_tensor t = on_gpu("d", HVD_FLOAT32, v, v, &n);

    fake.open_fails = "no driver";
    CHECK_OK(hvd_init(NULL));
    for (int i = 0; i < 2; i++) {
        fake.open_fails = i == 0 ? "no driver" : "another reason";
        CHECK_FAILS_AS(submit_refused(&t), HVD_INVALID_ARGUMENT,
                       "tensor \"d\": device 0: no driver");
    }
    CHECK_OK(sum_now("d", v, 1)); /* those in host memory still work */
    CHECK(v[0] == (float)(3 * size), "%g", (double)v[0]);
    CHECK_OK(hvd_shutdown());
    CHECK(fake.n_opened == 0 && fake.n_closed == 0, "%d", (int)fake.n_opened);
}

UNIT_TEST(a_wrong_device_is_refused_at_once)
{
    world_run(1, one_device_a_rank);
    world_run(2, no_device);
    world_run(1, a_captured_stream_is_refused);
}

/* --- ends --- */

/* Rank 0 has no GPU: it says so itself, or has been refused one. */
INIT_BODY(one_has_none)
{
    float v[1] = {0};
    int64_t n = 1;
    struct hvd_tensor t = on_gpu("x", HVD_FLOAT32, v, v, &n);
    hvd_handle h;

    for (int i = 0; i < 2; i++) {
        if (rank == 0) {
            fake.problem = fake.open_fails = i == 0 ? "no driver" : "no room";
            CHECK(i == 0 || submit_refused(&t) == HVD_INVALID_ARGUMENT, "ok");
            t.device = i == 0 ? HVD_DEVICE_NONE : HVD_DEVICE_HOST;
        }
        CHECK_OK(hvd_allreduce_async(&t, HVD_SUM, 1, 1, 0, &h));
        CHECK_KEPT(wait_release(h), HVD_INVALID_ARGUMENT,
                   i == 0 ? "(rank 0 has no GPU: no driver)"
                          : "(rank 0 has no GPU: no room)");
        t.device = 0;
    }
}

UNIT_TEST(a_tensor_in_both_kinds_of_memory_fails_on_all)
{
    world_run(2, one_has_none);
}

WORLD_TEST(a_broken_device_ends_the_world_with_its_sentence, 2)
{
    float v[1] = {0};
    hvd_handle h, last;

    CHECK_OK(hvd_init(NULL));
    CHECK_OK(sum_on_gpu("a", v, 1, &h));
    CHECK_OK(wait_release(h));
    fake_hold();
    CHECK_OK(sum_on_gpu("b", v, 1, &h));
    CHECK_OK(hvd_wait_on_stream(h, STREAM, -1));
    CHECK_OK(sum_on_gpu("c", v, 1, &last));
    CHECK_OK(hvd_wait_on_stream(last, STREAM, -1));
    if (rank == 0)
        fake_break("rank 0 (host testhost): XID 79");
    CHECK_FAILS(hvd_wait(h, -1), HVD_ABORTED, "XID 79");
    CHECK(hvd_wait(last, -1) == HVD_ABORTED, "status %d", hvd_poll(last));
    CHECK(fake.is_aborted, "the device was not told");
    CHECK_OK(hvd_release(h));
    CHECK_OK(hvd_release(last));
    CHECK_OK(hvd_shutdown());
    CHECK(fake.n_events == 0, "%d events are left", (int)fake.n_events);
}

WORLD_TEST(a_shutdown_ends_what_is_on_its_way, 2)
{
    float v[1] = {0};
    hvd_handle h;

    CHECK_OK(hvd_init(NULL));
    CHECK_OK(sum_on_gpu("a", v, 1, &h));
    CHECK_OK(wait_release(h));
    fake_hold();
    CHECK_OK(sum_on_gpu("b", v, 1, &h));
    CHECK_OK(hvd_wait_on_stream(h, STREAM, -1));
    CHECK_OK(barrier_now("all have posted"));
    CHECK_OK(hvd_shutdown());
    CHECK(hvd_poll(h) == HVD_PRECONDITION, "status %d", hvd_poll(h));
    CHECK(hvd_wait_on_stream(h, STREAM, -1) == HVD_PRECONDITION, "ok");
    CHECK(fake.is_aborted && fake.n_closed == 1, "the device was not told");
    CHECK_OK(hvd_release(h));
    CHECK(fake.n_events == 0, "%d events are left", (int)fake.n_events);
}

/* --- sets --- */

INIT_TEST(process_sets_open_their_own_communicators, 3)
{
    int ranks[] = {0, 1}, id;
    float v[1] = {1};
    int64_t n = 1;
    struct hvd_tensor t = on_gpu("s", HVD_FLOAT32, v, v, &n);
    hvd_handle h;

    CHECK_OK(hvd_process_set_add(ranks, 2, &id));
    if (rank < 2) {
        CHECK_OK(hvd_allreduce_async(&t, HVD_SUM, 1, 1, id, &h));
        CHECK_OK(wait_release(h));
        CHECK(v[0] == 2, "%g", (double)v[0]);
        CHECK(fake.n_comms == 1, "%d", (int)fake.n_comms);
    }
    CHECK_OK(barrier_now("before"));
    CHECK_OK(hvd_process_set_remove(id));
    CHECK(fake.n_comms_closed == fake.n_comms, "%d", (int)fake.n_comms_closed);
    v[0] = 1;
    CHECK_OK(sum_on_gpu("all", v, 1, &h));
    CHECK_OK(wait_release(h));
    CHECK(v[0] == (float)size, "%g", (double)v[0]);
}

UNIT_TEST(the_report_is_json)
{
    char text[2048];

    fake.n_gpus = 1;
    hvd_device_hint("/fw/libnccl.so.2");
    assert_true(hvd_device_report(text, sizeof(text)) < sizeof(text));
    assert_string_equal(
        text, "{\"can\":true,\"problem\":\"\",\"driver\":\"1.2\",\"cuda\":\"\","
              "\"nccl\":\"\",\"nccl_path\":\"/fw/libnccl.so.2\",\"kernels\":\"\","
              "\"gpus\":[{\"index\":0,\"name\":\"Fake \\\"0\\\"\",\"uuid\":\"\",\"sm\":"
              "0,\"memory_bytes\":0,\"mig\":false,\"nvlinks\":0}]}");
    assert_int_equal(setenv("HVD_GPU", "off", 1), 0);
    (void)hvd_device_report(text, sizeof(text));
    assert_non_null(strstr(text, "{\"can\":false,\"problem\":\"HVD_GPU=off\""));
    (void)unsetenv("HVD_GPU");
    fake.n_gpus = 8;
}

UNIT_MAIN(NULL, NULL)
