/* SPDX-License-Identifier: Apache-2.0 */
/* Compressed allreduces through the C API: right within the codec's bound, over many
 * steps, fused, beside uncompressed ones, with ranks that have joined. What a codec
 * does to numbers is core_compress_*_test.c's. */
#include <math.h>

#include "tests/unit/hvd_world.h"
#include "tests/unit/seeded.h"

enum { N = 6000, STEPS = 40, TRIES = STEPS / FEWER };

static float element_value(int rank, int step, int i)
{
    return sinf((float)(rank * 7919 + step * 31 + i)) * 3.0f;
}

static int sum_compressed_async(const char *name,
                                const char *codec,
                                float *v,
                                int ndim,
                                const int64_t *shape,
                                hvd_handle *h)
{
    struct hvd_tensor t = tensor_1d(name, HVD_FLOAT32, v, v, shape);

    t.ndim = ndim;
    t.compression = codec;
    return hvd_allreduce_async(&t, HVD_SUM, 1, 1, 0, h);
}

/* |got - exact| of one step, of the largest exact value. */
static double step_error(const char *codec, int rank, int size, int step)
{
    static float v[N];
    const int64_t shape[] = {60, N / 60};
    double worst = 0;
    hvd_handle h;

    for (int i = 0; i < N; i++)
        v[i] = element_value(rank, step, i);
    CHECK_OK(sum_compressed_async(codec, codec, v, 2, shape, &h));
    CHECK_OK(wait_release(h));
    for (int i = 0; i < N; i++) {
        double want = 0;

        for (int r = 0; r < size; r++)
            want += (double)element_value(r, step, i);
        worst = fmax(worst, fabs((double)v[i] - want));
    }
    return worst;
}

static void bound_body(int rank, int size)
{
    struct hvd_stats s = {.size_bytes = sizeof(s)};
    double peak = 3.0 * size;

    CHECK_OK(hvd_init(NULL));
    for (int step = 0; step < TRIES; step++) {
        double e = step_error("fp16", rank, size, step);

        CHECK(e <= peak / 1024, "fp16: %g", e);
        e = step_error("bf16", rank, size, step);
        CHECK(e <= peak / 128, "bf16: %g", e);
        e = step_error("int8:feedback=0", rank, size, step);
        CHECK(e <= peak / 127, "int8: %g", e);
        e = step_error("none", rank, size, step);
        CHECK(e <= peak * 1e-6, "none: %g", e);
    }
    CHECK_OK(hvd_stats(&s));
    CHECK(s.compression_raw == 3ull * TRIES * N * 4, "%llu bytes asked for it",
          (unsigned long long)s.compression_raw);
    CHECK(s.compression_wire > s.compression_raw / 3
              && s.compression_wire < s.compression_raw / 2,
          "%llu bytes", (unsigned long long)s.compression_wire); /* 2 + 2 + 1 of 12 */
    CHECK_OK(hvd_shutdown());
}

UNIT_TEST(results_are_within_the_bound)
{
    world_run(2, bound_body);
    world_run(3, bound_body);
    world_run(5, bound_body); /* int8 by shards */
}

/* With error feedback the sum over steps is right but for what is kept: the error does
 * not grow with the number of steps, as it does without. */
static void feedback_body(int rank, int size)
{
    static const char *const codecs[] = {"int8", "topk:ratio=0.05", "powersgd:rank=4"};
    static float v[N];
    static double sum[N];
    const int64_t shape[] = {60, N / 60};

    CHECK_OK(hvd_init(NULL));
    for (size_t c = 0; c < ARRAY_LEN(codecs); c++) {
        double early = 0, late = 0;
        hvd_handle h;

        memset(sum, 0, sizeof(sum));
        for (int step = 1; step <= 4 * STEPS; step++) {
            double worst = 0;

            for (int i = 0; i < N; i++)
                v[i] = element_value(rank, 0, i);
            CHECK_OK(sum_compressed_async(codecs[c], codecs[c], v, 2, shape, &h));
            CHECK_OK(wait_release(h));
            for (int i = 0; i < N; i++) {
                double want = 0;

                for (int r = 0; r < size; r++)
                    want += (double)element_value(r, 0, i);
                sum[i] += (double)v[i];
                worst = fmax(worst, fabs(sum[i] - want * step));
            }
            early = step <= STEPS ? fmax(early, worst) : early;
            late = step > 3 * STEPS ? fmax(late, worst) : late;
        }
        CHECK(late < 1.5 * early, "%s: off by %g, then by %g", codecs[c], early, late);
    }
    CHECK_OK(hvd_shutdown());
}

UNIT_TEST(feedback_makes_up_for_what_was_not_sent)
{
    world_run(2, feedback_body);
    world_run(3, feedback_body);
}

/* Many tensors at once, some that no codec takes. */
WORLD_TEST(tensors_are_fused, 3)
{
    enum { T = 12 };
    static float v[T][500];
    static int32_t whole[64];
    static char name[T][16];
    const int64_t n[] = {500}, m[] = {64};
    struct hvd_tensor t = tensor_1d("whole", HVD_INT32, whole, whole, m);
    hvd_handle h[T + 1];

    CHECK_OK(hvd_init(NULL));
    t.compression = "fp16";
    for (int step = 0; step < TRIES; step++) {
        for (int k = 0; k < T; k++) {
            (void)snprintf(name[k], sizeof(name[k]), "t%d", k);
            for (int i = 0; i < 500; i++)
                v[k][i] = (float)(rank + k + i % 3);
            CHECK_OK(sum_compressed_async(name[k], k % 3 == 0 ? "int8" : "fp16", v[k],
                                          1, n, &h[k]));
        }
        for (int i = 0; i < 64; i++)
            whole[i] = 1 << 20;
        CHECK_OK(hvd_allreduce_async(&t, HVD_SUM, 1, 1, 0, &h[T]));
        for (int k = 0; k <= T; k++)
            CHECK_OK(wait_release(h[k]));
        for (int k = 0; k < T; k++)
            for (int i = 0; i < 500; i++) {
                float want =
                    (float)(size * (size - 1)) / 2 + (float)(size * (k + i % 3));

                CHECK(fabsf(v[k][i] - want) <= want * 0.02f, "t%d[%d]: %g, not %g", k,
                      i, (double)v[k][i], (double)want);
            }
        CHECK(whole[7] == size << 20, "%d", whole[7]);
    }
    CHECK_OK(hvd_shutdown());
}

WORLD_TEST(a_joined_rank_takes_part, 3)
{
    static float v[N];
    const int64_t n[] = {N};
    struct hvd_tensor j = {.size_bytes = sizeof(j), .name = "join", .device = -1};
    hvd_handle h;

    (void)setenv("HVD_COMPRESSION", "int8:block=256", 1);
    CHECK_OK(hvd_init(NULL));
    for (int step = 0; step < 3 + rank; step++) {
        int n_there = 0;

        for (int r = 0; r < size; r++)
            n_there += step < 3 + r;
        for (int i = 0; i < N; i++)
            v[i] = 1;
        CHECK_OK(sum_compressed_async("v", NULL, v, 1, n, &h));
        CHECK_OK(wait_release(h));
        for (int i = 0; i < N; i++)
            CHECK(fabsf(v[i] - (float)n_there) < 0.05f, "step %d: %g, not %d", step,
                  (double)v[i], n_there);
    }
    CHECK_OK(hvd_join_async(&j, &h));
    CHECK_OK(wait_release(h));
    CHECK_OK(hvd_shutdown());
}

WORLD_TEST(ranks_must_name_the_same, 2)
{
    float v[4] = {1, 2, 3, 4};
    const int64_t n[] = {4};
    hvd_handle h;
    int r;

    CHECK_OK(hvd_init(NULL));
    CHECK(sum_compressed_async("x", "fp15", v, 1, n, &h) == HVD_INVALID_ARGUMENT,
          "fp15 was taken");
    CHECK(strstr(hvd_last_error(), "tensor \"x\": compression: \"fp15\""), "%s",
          hvd_last_error());
    CHECK_OK(sum_compressed_async("x", rank == 1 ? "bf16" : NULL, v, 1, n, &h));
    r = wait_release(h);
    CHECK(r == HVD_INVALID_ARGUMENT, "%d", r);
    CHECK(strcmp(shared->r[rank].text, "Mismatched compression: tensor \"x\": rank 0 "
                                       "has none, rank 1 has bf16")
              == 0,
          "%s", shared->r[rank].text);
    CHECK_OK(sum_now("y", v, 4));
    CHECK_OK(hvd_shutdown());
}

WORLD_TEST(a_bad_default_is_refused_by_name, 1)
{
    (void)setenv("HVD_COMPRESSION", "topk:ratio=2", 1);
    CHECK(hvd_init(NULL) < 0, "taken");
    CHECK(strstr(hvd_last_error(), "HVD_COMPRESSION"), "%s", hvd_last_error());
}

UNIT_MAIN(NULL, NULL)
