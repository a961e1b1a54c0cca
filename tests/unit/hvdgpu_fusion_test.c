/* SPDX-License-Identifier: Apache-2.0 */
/* A rank that has no memory for its fusion buffer: all ranks work without it, make the
 * same calls, and log it once. */
#include "tests/unit/hvdgpu_world.h"

enum { N = 50, TENSORS = 5 };

static bool has_memory; /* rank 1 */

/* In one batch; held, so that it is one on all ranks. */
static void sum_several(int rank, int size, float *v)
{
    hvd_handle h[TENSORS];
    char name[TENSORS][16];
    const int64_t n = N;

    for (int i = 0; i < TENSORS; i++) {
        float *x = v + i * N;
        struct hvd_tensor t = tensor_1d(name[i], HVD_FLOAT32, x, x, &n);

        (void)snprintf(name[i], sizeof(name[i]), "t%d", i);
        t.device = rank;
        t.is_held = 1;
        t.group = "all";
        t.group_size = TENSORS;
        for (int k = 0; k < N; k++)
            x[k] = (float)(rank + i + k);
        CHECK_OK(hvd_allreduce_async(&t, HVD_SUM, 1, 1, 0, &h[i]));
    }
    CHECK_OK(hvd_submit_held(h, TENSORS));
    for (int i = 0; i < TENSORS; i++)
        CHECK_OK(wait_release(h[i]));
    for (int i = 0; i < TENSORS * N; i++) {
        const int sum = size * (i / N + i % N) + size * (size - 1) / 2;

        CHECK(v[i] == (float)sum, "[%d] is %g, not %d", i, (double)v[i], sum);
    }
}

/* The calls of this rank, and what was logged about the buffer. */
static void report_calls(int rank, int fd)
{
    char *(*log_of)(int rank), text[4096] = "", *calls;

    *(void **)&log_of =
        dlsym(dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD), "fake_nccl_log");
    calls = log_of(rank);
    (void)snprintf(shared->r[rank].text, sizeof(shared->r[rank].text), "%s", calls);
    free(calls);
    CHECK(pread(fd, text, sizeof(text) - 1, 0) >= 0, "%d", errno);
    const char *ours = strstr(text, "no memory for the fusion buffer, the ranks do not "
                                    "pack tensors rank=1 bytes=136314880 streams=1"),
               *of_1 = strstr(text, "the ranks pack no more than the smallest fusion "
                                    "buffer holds rank=1 host=testhost bytes=0");
    CHECK(!!ours == (!has_memory && rank == 1), "%s", text);
    CHECK(!!of_1 == (!has_memory && rank == 0), "%s", text);
}

RANK_BODY(fusion_body)
{
    float *v = floats_on_gpu(rank, TENSORS * N);
    struct hvd_stats s = {.size_bytes = sizeof(s)};
    int fd = catch_stderr();

    if (rank == 1 && !has_memory)
        (void)setenv("HVD_FAKE_FAULTS", "oom=1", 1);
    CHECK_OK(hvd_init(NULL));
    for (int i = 0; i < 2; i++)
        sum_several(rank, size, v);
    CHECK_OK(hvd_stats(&s));
    CHECK((s.device_packed_bytes > 0) == has_memory, "%d packed, %d direct",
          (int)s.device_packed_bytes, (int)s.device_direct_bytes);
    CHECK_OK(hvd_shutdown());
    report_calls(rank, fd);
}

static void run_fusion(bool has)
{
    has_memory = has;
    gpu_world_run_usual(3, fusion_body);
    for (int r = 1; r < 3; r++)
        assert_string_equal(shared->r[r].text, shared->r[0].text);
    assert_true(strlen(shared->r[0].text) > 0);
}

UNIT_TEST(ranks_pack_into_the_buffers_of_the_start)
{
    run_fusion(true);
}

UNIT_TEST(ranks_do_without_the_buffer_that_one_could_not_take)
{
    run_fusion(false);
}

UNIT_MAIN(NULL, NULL)
