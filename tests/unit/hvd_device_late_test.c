/* SPDX-License-Identifier: Apache-2.0 */
/* A peer on GPUs that is late, on a device in memory (fake_device.h): a rank that
 * waits for a batch to end, or for room for another, makes the device poll often, and
 * sleeps. The errors of such a device without memory, and the deadline for peers to
 * connect. */
#include "tests/unit/hvd_world.h"

#include "runtime/engine/flight.h"
#include "tests/unit/hvd_gpu.h"

static void *let_all_once_it_sleeps(void *arg)
{
    _Atomic bool *sleeps = arg;
    const uint64_t end_ns = clock_now_ns() + 20 * NS_PER_S;

    while (fake.n_awaiting == 0 && clock_now_ns() < end_ns)
        (void)usleep(100); /* polls: the fake reports to nobody who sleeps in it */
    *sleeps = fake.n_awaiting == 1;
    fake_let(UINT64_MAX);
    return NULL;
}

INIT_TEST(a_wait_for_an_end_queries_the_device, 2)
{
    float v = 1;
    _Atomic bool sleeps = false;
    pthread_t t;
    hvd_handle h;

    fake_hold();
    CHECK_OK(sum_on_gpu("a", &v, 1, &h));
    CHECK(pthread_create(&t, NULL, let_all_once_it_sleeps, &sleeps) == 0, "no thread");
    CHECK_OK(hvd_wait(h, -1));
    CHECK(pthread_join(t, NULL) == 0 && sleeps, "nobody asked");
    CHECK(fake.n_awaiting == 0, "%d", (int)fake.n_awaiting);
    CHECK_OK(hvd_release(h));
}

INIT_TEST(a_wait_for_room_sleeps, 2)
{
    enum { N = FLIGHTS_MAX + 1 };
    static float v[N];
    _Atomic bool sleeps = false;
    pthread_t t;
    hvd_handle h[N];

    fake_hold();
    for (int i = 0; i < N; i++) {
        CHECK_OK(sum_on_gpu("again", &v[i], 1, &h[i]));
        if (i + 1 == N)
            CHECK(pthread_create(&t, NULL, let_all_once_it_sleeps, &sleeps) == 0,
                  "no thread");
        CHECK_OK(hvd_wait_on_stream(h[i], STREAM, -1));
    }
    CHECK(pthread_join(t, NULL) == 0 && sleeps, "it does not sleep");
    for (int i = 0; i < N; i++)
        CHECK_OK(wait_release(h[i]));
    CHECK(fake.n_awaiting == 0, "%d", (int)fake.n_awaiting);
}

/* --- a device that has no memory for a result ---
 */

static const struct refusal {
    int result;
    const char *says, *sentence;
} refusals[] = {
    {-EIO, "rank 1 (host b): cuMemAlloc: an illegal memory access",
     "rank 1 (host b): cuMemAlloc: an illegal memory access"},
    {-ENOMEM, "64 bytes of GPU memory: out of memory",
     "rank 1 has no memory for the result of tensor \"g\": 64 bytes of GPU memory: out "
     "of memory"},
};
static const struct refusal *the_refusal;

RANK_BODY(of_a_result)
{
    float v = 1;
    int64_t n = 1;
    struct hvd_tensor t = on_gpu("g", HVD_FLOAT32, &v, NULL, &n);
    hvd_handle h;

    if (rank == 1) {
        fake.alloc_result = the_refusal->result;
        fake.alloc_fails = the_refusal->says;
    }
    CHECK_OK(hvd_init(NULL));
    CHECK_OK(hvd_allgather_async(&t, NULL, NULL, 0, &h));
    CHECK(wait_release(h) == HVD_ABORTED, "status %d", hvd_poll(h));
    CHECK_OK(hvd_shutdown());
}

UNIT_TEST(a_device_error_about_a_result_is_the_cause)
{
    for (size_t i = 0; i < ARRAY_LEN(refusals); i++) {
        the_refusal = &refusals[i];
        world_run(2, of_a_result);
        for (int r = 0; r < 2; r++)
            assert_non_null(strstr(shared->r[r].text, the_refusal->sentence));
    }
}

WORLD_TEST(a_late_start_extends_the_connect_timeout, 2)
{
    float v = 1;
    hvd_handle h;

    (void)setenv("HOROVOD_START_TIMEOUT", "90", 1); /* more than is given anyway */
    CHECK_OK(hvd_init(NULL));
    CHECK_OK(sum_on_gpu("a", &v, 1, &h));
    CHECK_OK(wait_release(h));
    CHECK(fake.device.config.init_timeout_ns
              == 90 * NS_PER_S + (unsigned)size * 100 * NS_PER_MS,
          "%llu", (unsigned long long)fake.device.config.init_timeout_ns);
    CHECK_OK(hvd_shutdown());
}

UNIT_MAIN(NULL, NULL)
