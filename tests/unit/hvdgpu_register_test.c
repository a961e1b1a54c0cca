/* SPDX-License-Identifier: Apache-2.0 */
/* Registered buffers through hvd.h and libhvd_cuda.so's row, on the fakes: the fake
 * NCCL ends the test if a call finds its memory registered on some ranks only, or if a
 * buffer is freed while a kernel may use it. */
#include "tests/unit/hvdgpu_world.h"

#include <fcntl.h>

enum { N = 4000 };

static int
buffer_register(int rank, const char *name, const float *p, int64_t n, int set)
{
    struct hvd_tensor t = tensor_1d(name, HVD_FLOAT32, p, NULL, &n);
    hvd_handle h;
    int rc;

    t.device = rank;
    rc = hvd_register_async(&t, set, &h);
    return rc < 0 ? rc : wait_release(h);
}

/* Fifteen tensors side by side and one elsewhere, in any order. */
static void rank_sums(int rank, int size, float *in, float *other, const char *what)
{
    enum { TENSORS = 16, EACH = 200 };
    hvd_handle h[TENSORS];
    char name[32];

    for (int i = 0; i < N; i++)
        in[i] = other[i] = (float)(i % 7);
    for (int k = 0; k < TENSORS; k++) {
        const int i = rank % 2 ? TENSORS - 1 - k : k;

        (void)snprintf(name, sizeof(name), "%s.%d", what, i);
        CHECK_OK(sum_on_gpu(rank, name, i > 0 ? in + i * EACH : other, EACH, 0, &h[i]));
    }
    for (int i = 0; i < TENSORS; i++)
        CHECK_OK(wait_release(h[i]));
    for (int i = 0; i < EACH; i++)
        CHECK(other[i] == (float)(size * (i % 7)), "%g", (double)other[i]);
    for (int i = EACH; i < TENSORS * EACH; i++)
        CHECK(in[i] == (float)(size * (i % 7)), "%d: %g", i, (double)in[i]);
}

/* Every collective with its input in a buffer; rows differ by rank. */
static void all_from_buffer(int rank, int size, float *v, float *w)
{
    int64_t n = 4 * size, mine = 3 + rank, splits[8];
    struct hvd_tensor t = tensor_1d("c", HVD_FLOAT32, v, v + 100, &n);
    hvd_handle h;

    t.device = rank;
    CHECK_END(hvd_broadcast_async(&t, 1, 0, &h));
    CHECK_END(hvd_reduce_async(&t, HVD_SUM, 0.5, 1, 0, 0, &h)); /* scaled before */
    CHECK_END(hvd_reduce_async(&t, HVD_MAX, 1, 1, 1, 0, &h));
    CHECK_END(hvd_reducescatter_async(&t, HVD_SUM, 1, 1, NULL, NULL, 0, &h));
    n = 4 * size + 1; /* uneven */
    CHECK_END(hvd_reducescatter_async(&t, HVD_SUM, 1, 1, NULL, NULL, 0, &h));
    CHECK_END(hvd_allgather_async(&t, NULL, NULL, 0, &h));
    t.shape = &mine;
    CHECK_END(hvd_allgather_async(&t, NULL, NULL, 0, &h));
    CHECK_END(hvd_gather_async(&t, 0, NULL, NULL, 0, &h));
    mine = 0;
    for (int i = 0; i < size; i++)
        mine += splits[i] = 1 + i;
    CHECK_END(hvd_alltoall_async(&t, splits, size, NULL, NULL, 0, &h));
    t.dtype = HVD_INT16; /* travels as something else */
    t.output = v;
    CHECK_END(hvd_allreduce_async(&t, HVD_SUM, 1, 1, 0, &h));
    if (rank < 2) { /* of a pair they are not registered */
        t.output = w;
        CHECK_END(rank == 0 ? hvd_send_async(&t, 1, &h) : hvd_recv_async(&t, 0, &h));
    }
}

static void uses_buffers(int rank, int size)
{
    float *v, *w;

    CHECK_OK(hvd_init(NULL));
    v = floats_on_gpu(rank, N);
    w = floats_on_gpu(rank, N);
    CHECK_OK(buffer_register(rank, "flat", v, N, 0));
    rank_sums(rank, size, v, w, "a");
    rank_sums(rank, size, v, w, "a"); /* by the cache, then by a plan */
    rank_sums(rank, size, v, w, "a");
    all_from_buffer(rank, size, v, w);
    CHECK_OK(hvd_deregister(v, 0));
    rank_sums(rank, size, v, w, "a");
    CHECK_OK(buffer_register(rank, "flat", v, N, 0));
    CHECK_OK(buffer_register(rank, "other", w, N, 0));
    rank_sums(rank, size, v, w, "a");
    CHECK_OK(hvd_shutdown()); /* with both */
}

/* A batch of its own each: one tensor, one that travels as something else, two. */
GPU_WORLD_TEST(bytes_are_counted_by_their_way, 2)
{
    struct hvd_stats s = {.size_bytes = sizeof(s)};
    float *v = floats_on_gpu(rank, N), *w;
    int64_t n = 100;
    struct hvd_tensor t = tensor_1d("i", HVD_INT16, v, v, &n);
    hvd_handle h;

    CHECK_OK(hvd_init(NULL));
    CHECK_OK(hvd_stats(&s));
    CHECK(s.device_batches == 0 && s.device_nccl == 0, "before");
    w = floats_on_gpu(rank, N);
    CHECK_OK(sum_gpu_now(rank, "a", v, 1000, 0));
    t.device = rank;
    CHECK_END(hvd_allreduce_async(&t, HVD_SUM, 1, 1, 0, &h));
    CHECK_OK(buffer_register(rank, "w", w, N, 0));
    CHECK_OK(sum_gpu_now(rank, "b", w, 10, 0));
    CHECK_OK(hvd_stats(&s));
    CHECK(s.device_batches == 3 && s.device_packed_bytes == 200
              && s.device_direct_bytes == 4040 && s.device_registered_bytes == 40,
          "%d batches, %d packed, %d direct, %d registered", (int)s.device_batches,
          (int)s.device_packed_bytes, (int)s.device_direct_bytes,
          (int)s.device_registered_bytes);
    CHECK(s.device_nccl == 22705 && s.device_sm > 0 && s.device_cuda >= 11000,
          "NCCL %d, sm %d, CUDA %d", (int)s.device_nccl, (int)s.device_sm,
          (int)s.device_cuda);
    CHECK(s.tensors[12] == 1 && size == 2, "%d", (int)s.tensors[12]);
    CHECK_OK(hvd_shutdown());
}

UNIT_TEST(batches_move_from_and_to_registered_buffers)
{
    gpu_world_run("22705", 3, uses_buffers);
    (void)setenv("HVD_GPU_REGISTER", "1", 1); /* what is packed is registered too */
    world_run(2, uses_buffers);
    (void)unsetenv("HVD_GPU_REGISTER");
    gpu_world_run("21903", 2, uses_buffers); /* the first that can */
}

static void one_cannot(int rank, int size)
{
    float *v, *w;

    CHECK_OK(hvd_init(NULL));
    v = floats_on_gpu(rank, N);
    w = floats_on_gpu(rank, N);
    CHECK(buffer_register(rank, "flat", v, N, 0) == HVD_UNSUPPORTED, "ok");
    rank_sums(rank, size, v, w, "a"); /* as any other */
    CHECK_OK(hvd_shutdown());
}

static void assert_ranks_say(int n, const char *text)
{
    for (int r = 0; r < n; r++)
        assert_non_null(strstr(shared->r[r].text, text));
}

static char log_path[64];

/* HVD_GPU_REGISTER has no effect, and rank 0 logs that. */
static void one_cannot_and_logs_it(int rank, int size)
{
    int fd = open(log_path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

    CHECK(rank != 0 || dup2(fd, 2) == 2, "no log");
    one_cannot(rank, size);
}

UNIT_TEST(where_one_cannot_none_does)
{
    static const char old[] = "rank 0 (host testhost) cannot: NCCL 2.18.6 has no "
                              "ncclCommRegister, which came with 2.19";
    AUTOFREE char *text = NULL;

    (void)setenv("HVD_FAKE_FAULTS", "register_error=1:1", 1);
    gpu_world_run("22705", 3, one_cannot);
    (void)unsetenv("HVD_FAKE_FAULTS");
    assert_ranks_say(3, "tensor \"flat\": its memory was not registered on any rank: "
                        "rank 1 (host testhost) cannot: ncclCommRegister: ");
    gpu_world_run("21806", 2, one_cannot);
    assert_ranks_say(2, old);
    (void)setenv("HVD_GPU_REGISTER", "1", 1);
    (void)snprintf(log_path, sizeof(log_path), "/tmp/hvdgpu_register_test.%d",
                   (int)getpid());
    world_run(2, one_cannot_and_logs_it);
    (void)unsetenv("HVD_GPU_REGISTER");
    assert_ranks_say(2, old);
    assert_int_equal(fd_read_file(log_path, 1 << 20, &text, NULL, NULL), 0);
    (void)unlink(log_path);
    assert_non_null(strstr(text, "the fusion buffer is not registered, continuing"));
}

static void free_on_gpu(float *p)
{
    struct cuda_api cu;
    struct err err = ERR_INIT;

    CHECK(cuda_load(CUDA_LIBRARY, &cu, &err) == 0, "%s", err.text);
    CHECK(cu.mem_free((cu_ptr)(uintptr_t)p) == 0, "not freed");
}

/* The fake looks whether memory that is deregistered is still there. */
GPU_WORLD_TEST(a_set_that_goes_takes_its_buffers_along, 3)
{
    static const int ranks[] = {0, 2};
    float *v, *w;
    int id;

    CHECK_OK(hvd_init(NULL));
    v = floats_on_gpu(rank, N);
    CHECK_OK(sum_gpu_now(rank, "first", v, N, 0));
    CHECK_OK(hvd_process_set_add(ranks, 2, &id)); /* split off the world's */
    if (rank != 1) {
        w = floats_on_gpu(rank, N);
        CHECK_OK(buffer_register(rank, "w", w, N, id));
        CHECK_OK(sum_gpu_now(rank, "s", w, N, id));
        CHECK_OK(hvd_deregister(w, id));
        free_on_gpu(w);
        CHECK_OK(buffer_register(rank, "s", v, N, id));
        CHECK_OK(sum_gpu_now(rank, "s", v, N, id));
    }
    CHECK_OK(sum_gpu_now(rank, "w", v, N, 0));
    CHECK_OK(hvd_process_set_remove(id)); /* with its buffer */
    free_on_gpu(v);
    v = floats_on_gpu(rank, N);
    CHECK_OK(sum_gpu_now(rank, "w", v, N, 0));
    CHECK(size == 3, "%d", size);
    CHECK_OK(hvd_shutdown());
}

UNIT_MAIN(NULL, NULL)
