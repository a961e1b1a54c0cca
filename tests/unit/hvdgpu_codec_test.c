/* SPDX-License-Identifier: Apache-2.0 */
/* Compression of GPU tensors through the C API: the same numbers as for tensors of the
 * host, with a tensor's own codec and with HVD_COMPRESSION, with ranks that have
 * joined and sets that are removed; and refusals. */
#include <dlfcn.h>
#include <math.h>

#include "tests/unit/hvdgpu_world.h"
#include "tests/unit/seeded.h"

enum { N = 6000, STEPS = 20 / FEWER, TENSORS = 6 };

static float value_of(int rank, int step, int i)
{
    return sinf((float)(rank * 7919 + step * 31 + i)) * 3.0f;
}

static bool has_no_blas; /* in this process */
static int n_blas_looks;

/* In place of libc's, which it calls: a machine without cuBLAS. */
void *dlopen(const char *name, int flags);
void *dlopen(const char *name, int flags)
{
    void *(*real)(const char *, int);
    void *p = dlsym(RTLD_NEXT, "dlopen");

    memcpy(&real, &p, sizeof(real));
    if (!name || !strstr(name, "libcublas"))
        return real(name, flags);
    n_blas_looks++;
    return has_no_blas ? NULL : real(name, flags);
}

static int tensor_submit(int device,
                         const char *name,
                         const char *codec,
                         float *v,
                         int op,
                         int set,
                         hvd_handle *h)
{
    const int64_t shape[] = {60, N / 60};
    struct hvd_tensor t = tensor_1d(name, HVD_FLOAT32, v, v, shape);

    t.ndim = 2;
    t.device = device;
    t.compression = codec;
    return hvd_allreduce_async(&t, op, 1, 1, set, h);
}

/* --- as on the host --- */

static const char *the_codec; /* NULL: HVD_COMPRESSION's */
static int the_op;
static double the_slack; /* 0: to the bit */

RANK_BODY(beside_body)
{
    static float host[TENSORS][N];
    float *gpu[TENSORS];
    struct hvd_stats s = {.size_bytes = sizeof(s)};
    hvd_handle h[2 * TENSORS];

    CHECK_OK(hvd_init(NULL));
    for (int k = 0; k < TENSORS; k++)
        gpu[k] = floats_on_gpu(rank, N);
    for (int step = 0; step < STEPS; step++) {
        for (int k = 0; k < TENSORS; k++) {
            char name[2][16];

            (void)snprintf(name[0], sizeof(name[0]), "host%d", k);
            (void)snprintf(name[1], sizeof(name[1]), "gpu%d", k);
            for (int i = 0; i < N; i++)
                host[k][i] = gpu[k][i] = value_of(rank, step * TENSORS + k, i);
            CHECK_OK(tensor_submit(HVD_DEVICE_HOST, name[0], the_codec, host[k], the_op,
                                   0, &h[2 * k]));
            CHECK_OK(tensor_submit(rank, name[1], the_codec, gpu[k], the_op, 0,
                                   &h[2 * k + 1]));
        }
        for (int k = 0; k < 2 * TENSORS; k++)
            CHECK_OK(wait_release(h[k]));
        for (int k = 0; k < TENSORS; k++)
            for (int i = 0; i < N; i++)
                CHECK(fabsf(host[k][i] - gpu[k][i]) <= the_slack,
                      "step %d: %d of tensor %d is %.9g, not %.9g", step, i, k,
                      (double)gpu[k][i], (double)host[k][i]);
    }
    CHECK((n_blas_looks > 0) == (the_codec && strstr(the_codec, "powersgd")),
          "%d looks for cuBLAS, of %s", n_blas_looks, the_codec ? the_codec : "int8");
    CHECK_OK(hvd_stats(&s));
    CHECK(s.compression_raw == 2ull * STEPS * TENSORS * N * 4
              && s.compression_wire <= s.compression_raw / 2,
          "%llu bytes of %llu", (unsigned long long)s.compression_wire,
          (unsigned long long)s.compression_raw);
    CHECK_OK(hvd_shutdown());
}

/* All have the same bits: the least of any number is the greatest. */
RANK_BODY(same_body)
{
    float *v = floats_on_gpu(rank, N), *least = floats_on_gpu(rank, N),
          *most = floats_on_gpu(rank, N);
    hvd_handle h;

    CHECK_OK(hvd_init(NULL));
    for (int i = 0; i < N; i++)
        v[i] = value_of(rank, 1, i);
    CHECK_END(tensor_submit(rank, "x", the_codec, v, the_op, 0, &h));
    memcpy(least, v, N * sizeof(*v));
    memcpy(most, v, N * sizeof(*v));
    CHECK_END(tensor_submit(rank, "least", "none", least, HVD_MIN, 0, &h));
    CHECK_END(tensor_submit(rank, "most", "none", most, HVD_MAX, 0, &h));
    for (int i = 0; i < N; i++)
        CHECK(least[i] == most[i], "%d: %.9g to %.9g", i, (double)least[i],
              (double)most[i]);
    CHECK_OK(hvd_shutdown());
}

UNIT_TEST(results_are_the_host_s)
{
    static const struct {
        const char *codec;
        double slack;
        int op, size;
        rank_fn body;
    } rows[] = {
        {"int8", 0, HVD_AVERAGE, 2, beside_body},
        {"int8", 0, HVD_AVERAGE, 3, beside_body},
        {"topk:ratio=0.05", 0, HVD_AVERAGE, 2, beside_body},
        /* both stop at float32's end */
        {"powersgd:rank=2", 1e-3, HVD_AVERAGE, 3, beside_body},
        {"fp16", 0.02, HVD_AVERAGE, 3, beside_body},
        {"bf16", 0.1, HVD_AVERAGE, 2, beside_body},
        /* as on the host each level rounds, of any number of ranks */
        {"fp16", 0.02, HVD_ADASUM, 2, beside_body},
        {"fp16", 0.02, HVD_ADASUM, 3, beside_body},
        {"fp16", 0, HVD_ADASUM, 3, same_body},
        {"fp16", 0, HVD_ADASUM, 4, same_body},
        {"bf16", 0.15, HVD_ADASUM, 4, beside_body},
        {"bf16", 0, HVD_ADASUM, 3, same_body},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        the_codec = rows[i].codec;
        the_slack = rows[i].slack;
        the_op = rows[i].op;
        gpu_world_run_usual(rows[i].size, rows[i].body);
    }
}

UNIT_TEST(the_default_counts_for_gpus_too)
{
    the_codec = NULL;
    the_slack = 0;
    the_op = HVD_AVERAGE;
    (void)setenv("HVD_COMPRESSION", "int8:block=256", 1);
    gpu_world_run_usual(3, beside_body);
    (void)unsetenv("HVD_COMPRESSION");
}

/* --- ranks that have joined, sets that go --- */

static void joins_body(int rank, int size)
{
    struct hvd_tensor j = {.size_bytes = sizeof(j), .name = "join"};
    float *v = floats_on_gpu(rank, N);
    hvd_handle h;

    j.device = rank;
    CHECK_OK(hvd_init(NULL));
    for (int step = 0; step < 3 + rank; step++) {
        for (int i = 0; i < N; i++)
            v[i] = (float)(rank + 1);
        CHECK_END(tensor_submit(rank, "x", "int8", v, HVD_SUM, 0, &h));
        float want = 0; /* of the ranks that have not joined yet */
        for (int r = 0; r < size; r++)
            want += step < 3 + r ? (float)(r + 1) : 0;
        CHECK(fabsf(v[N - 1] - want) < 0.1f, "%g, not %g", (double)v[N - 1],
              (double)want);
    }
    CHECK_END(hvd_join_async(&j, &h));
    CHECK_OK(hvd_shutdown());
}

GPU_WORLD_TEST(sets_come_and_go, 3)
{
    float *v = floats_on_gpu(rank, N);
    int ranks[] = {0, 1}, id;
    hvd_handle h;

    CHECK_OK(hvd_init(NULL));
    for (int k = 0; k < 3; k++) {
        CHECK_OK(hvd_process_set_add(ranks, 2, &id));
        for (int step = 0; step < 2 && rank < 2; step++) {
            for (int i = 0; i < N; i++)
                v[i] = value_of(rank, 0, i);
            CHECK_END(tensor_submit(rank, "x", "int8", v, HVD_SUM, id, &h));
            /* no residual of the set before: the first step is the first one's */
            const double e = fabs((double)v[7] - (double)value_of(0, 0, 7)
                                  - (double)value_of(1, 0, 7));
            CHECK(e < 0.06, "step %d of set %d: off by %g", step, id, e);
        }
        CHECK_OK(barrier_now("before"));
        CHECK_OK(hvd_process_set_remove(id));
    }
    CHECK_OK(hvd_shutdown());
}

UNIT_TEST(a_joined_rank_gives_zeros)
{
    gpu_world_run_usual(2, joins_body);
    gpu_world_run_usual(3, joins_body);
}

/* --- what is refused --- */

GPU_WORLD_TEST(what_cannot_be_done_fails_the_tensor_alone, 2)
{
    float *v = floats_on_gpu(rank, N);
    hvd_handle h;

    has_no_blas = rank == 1;
    CHECK_OK(hvd_init(NULL));
    CHECK_OK(tensor_submit(rank, "a", "powersgd", v, HVD_SUM, 0, &h));
    CHECK(wait_release(h) == HVD_INVALID_ARGUMENT, "%d", hvd_poll(h));
    CHECK(!strcmp(shared->r[rank].text,
                  "tensor \"a\": compression powersgd of GPU tensors: rank 1 (host "
                  "testhost): cuBLAS is needed (libcublas.so.13, .12 or .11 was not "
                  "found)"),
          "%s", shared->r[rank].text);
    v[0] = 1; /* the world still works, and other codecs do */
    CHECK_END(tensor_submit(rank, "a", "none", v, HVD_SUM, 0, &h));
    CHECK(v[0] == (float)size, "%g", (double)v[0]);
    CHECK_END(tensor_submit(rank, "b", "int8", v, HVD_SUM, 0, &h));
    has_no_blas = false; /* it has been installed */
    CHECK_END(tensor_submit(rank, "c", "powersgd", v, HVD_SUM, 0, &h));
    CHECK_OK(hvd_shutdown());
}

/* A finding of HVD_NANCHECK in it is not reported for the next batch. */
GPU_WORLD_TEST(a_refused_tensor_s_nan_is_nobody_s, 2)
{
    float *v = floats_on_gpu(rank, N), *w = floats_on_gpu(rank, N);
    const int64_t shape[] = {N};
    struct hvd_tensor t = tensor_1d("i", HVD_INT32, w, w, shape);
    hvd_handle h;

    (void)setenv("HVD_NANCHECK", "1", 1);
    has_no_blas = rank == 1;
    CHECK_OK(hvd_init(NULL));
    memset(w, 0, N * sizeof(*w));
    v[5] = NAN;
    CHECK_OK(tensor_submit(rank, "a", "powersgd", v, HVD_SUM, 0, &h));
    CHECK(wait_release(h) == HVD_INVALID_ARGUMENT, "%d", hvd_poll(h));
    t.device = rank;
    ((int32_t *)(void *)w)[5] = 1;
    CHECK_END(hvd_allreduce_async(&t, HVD_SUM, 1, 1, 0, &h));
    CHECK(((int32_t *)(void *)w)[5] == size, "%d", ((int32_t *)(void *)w)[5]);
    CHECK_OK(hvd_shutdown());
}

RANK_BODY(little_body)
{
    float *v = floats_on_gpu(rank, N);
    hvd_handle h;

    CHECK_OK(hvd_init(NULL));
    CHECK_OK(tensor_submit(rank, "a", "int8", v, HVD_SUM, 0, &h));
    CHECK(wait_release(h) == HVD_ABORTED, "%d", hvd_poll(h));
    CHECK(strstr(shared->r[rank].text,
                 "compression of \"a\": keeps 24000 bytes between "
                 "steps, 16384 of 16384 are left "
                 "(HVD_COMPRESSION_MEMORY)"),
          "%s", shared->r[rank].text);
    CHECK_OK(hvd_shutdown());
}

UNIT_TEST(too_little_memory_is_reported)
{
    (void)setenv("HVD_COMPRESSION_MEMORY", "16384", 1);
    gpu_world_run_usual(2, little_body);
    (void)unsetenv("HVD_COMPRESSION_MEMORY");
}

UNIT_MAIN(NULL, NULL)
