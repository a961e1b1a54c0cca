/* SPDX-License-Identifier: Apache-2.0 */
/* Batches that do not end, those of which a rank has some tensors only, because it has
 * joined in between, and when results are freed. On a device in memory (fake_device.h).
 */
#include "tests/unit/hvd_gpu.h"

/* Rank 1 submits "bad" and has no more; rank 0's "other" is in front of it in the
 * batch, so it is the second there, and rank 1's only one. */
WORLD_TEST(a_nan_of_one_that_has_joined_is_named, 2)
{
    struct hvd_tensor j = {.size_bytes = sizeof(j), .name = "join"};
    float v[2] = {1, 1}, w[2] = {1, 1};
    const int64_t n = 2;
    struct hvd_tensor bad = on_gpu("bad", HVD_FLOAT32, v, v, &n),
                      other = on_gpu("other", HVD_FLOAT32, w, w, &n);
    hvd_handle h[2], joined;

    (void)setenv("HVD_NANCHECK", "1", 1);
    (void)setenv("HOROVOD_CYCLE_TIME", "50", 1);
    CHECK_OK(hvd_init(NULL));
    if (rank == 1) {
        v[1] = (v[0] - v[0]) / (v[0] - v[0]);
        CHECK_OK(hvd_allreduce_async(&bad, HVD_SUM, 1, 1, 0, &h[0]));
        CHECK_OK(hvd_join_async(&j, &joined));
        (void)hvd_wait(h[0], 100); /* nobody else has it; by then rank 0 knows both */
        stage_set(1, 1);
        CHECK_KEPT(wait_release(h[0]), HVD_ABORTED,
                   "NaN on rank 1 (host testhost): element 1 of 2 in tensor \"bad\"");
        stage_set(1, 2);
    } else {
        stage_wait(1, 1);
        other.is_held = bad.is_held = 1;
        CHECK_OK(hvd_allreduce_async(&other, HVD_SUM, 1, 1, 0, &h[0]));
        CHECK_OK(hvd_allreduce_async(&bad, HVD_SUM, 1, 1, 0, &h[1]));
        CHECK_OK(hvd_submit_held(h, 2));
        (void)hvd_wait(h[0], -1); /* its own part may end well */
        (void)hvd_wait(h[1], -1);
        stage_wait(1, 2); /* a goodbye might come first */
    }
    CHECK_OK(hvd_shutdown());
}

/* The number behind these words; -1: they are not there. */
static int number_after(const char *text, const char *words)
{
    const char *at = strstr(text, words);

    return at ? atoi(at + strlen(words)) : -1;
}

WORLD_TEST(a_stalled_operation_is_reported_and_ended, 2)
{
    static const char how_long[] = "stalled (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS): "
                                   "tensor \"late\" and 0 other tensors of "
                                   "rank 1 have been in progress on the GPU for ";
    float v[2] = {1, 1};
    char said[4096] = "";
    hvd_handle h;
    int fd;

    (void)setenv("HOROVOD_STALL_CHECK_TIME_SECONDS", "1", 1);
    (void)setenv("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", rank == 1 ? "5" : "0", 1);
    CHECK_OK(hvd_init(NULL));
    fd = catch_stderr();
    fake_hold();
    CHECK_OK(sum_on_gpu("late", v, 2, &h));
    CHECK(wait_release(h) == HVD_ABORTED, "%s", shared->r[rank].text);
    CHECK(number_after(shared->r[rank].text, how_long) >= 5, "%s",
          shared->r[rank].text); /* more on a busy machine */
    CHECK(pread(fd, said, sizeof(said) - 1, 0) > 0, "%d", errno);
    CHECK(strstr(said, "still waiting") && strstr(said, "tensor=\"late\"")
              && number_after(said, "seconds=") >= 1,
          "%s", said);
    (void)hvd_shutdown();
}

#define READER ((void *)(uintptr_t)0x52)

/* In the order of the stream that reads it: the submitter's knows nothing of that. */
WORLD_TEST(a_result_is_freed_after_its_last_waiter, 2)
{
    float v[2] = {(float)rank, 1};
    const int64_t n = 2;
    struct hvd_tensor t = on_gpu("g", HVD_FLOAT32, v, NULL, &n);
    hvd_handle h;

    CHECK_OK(hvd_init(NULL));
    CHECK_OK(hvd_allgather_async(&t, NULL, NULL, 0, &h));
    CHECK_OK(wait_release(h));
    CHECK(fake.last_free_stream == STREAM, "freed in %p", fake.last_free_stream);
    CHECK_OK(hvd_allgather_async(&t, NULL, NULL, 0, &h));
    CHECK_OK(hvd_wait_on_stream(h, STREAM, -1));
    CHECK_OK(hvd_wait_on_stream(h, READER, -1));
    CHECK_OK(wait_release(h));
    CHECK(fake.last_free_stream == READER, "freed in %p", fake.last_free_stream);
    CHECK_OK(hvd_shutdown());
    CHECK(fake.n_events == 0, "%d events are left", (int)fake.n_events);
}

UNIT_MAIN(NULL, NULL)
