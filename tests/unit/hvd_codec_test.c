/* SPDX-License-Identifier: Apache-2.0 */
/* Compressed allreduces through the C API: with ranks that have joined, and refused
 * ones. What a codec does to numbers: tests/python/ranks/capi_codecs.py, how training
 * converges compressing.py, on GPUs hvdgpu_codec_test. */
#include <math.h>

#include "tests/unit/hvd_world.h"

enum { N = 6000 };

static int sum_compressed_async(
    const char *name, const char *codec, float *v, const int64_t *shape, hvd_handle *h)
{
    struct hvd_tensor t = tensor_1d(name, HVD_FLOAT32, v, v, shape);

    t.compression = codec;
    return hvd_allreduce_async(&t, HVD_SUM, 1, 1, 0, h);
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
        CHECK_OK(sum_compressed_async("v", NULL, v, n, &h));
        CHECK_OK(wait_release(h));
        for (int i = 0; i < N; i++)
            CHECK(fabsf(v[i] - (float)n_there) < 0.05f, "step %d: %g, not %d", step,
                  (double)v[i], n_there);
    }
    CHECK_OK(hvd_join_async(&j, &h));
    CHECK_OK(wait_release(h));
    CHECK_OK(hvd_shutdown());
}

INIT_TEST(ranks_must_name_the_same, 2)
{
    float v[4] = {1, 2, 3, 4};
    const int64_t n[] = {4};
    hvd_handle h;

    CHECK_FAILS(sum_compressed_async("x", "fp15", v, n, &h), HVD_INVALID_ARGUMENT,
                "tensor \"x\": compression: \"fp15\"");
    CHECK_OK(sum_compressed_async("x", rank == 1 ? "bf16" : NULL, v, n, &h));
    CHECK_KEPT_AS(wait_release(h), HVD_INVALID_ARGUMENT,
                  "Mismatched compression: tensor \"x\": rank 0 "
                  "has none, rank 1 has bf16");
    CHECK_OK(sum_now("y", v, 4));
}

WORLD_TEST(a_bad_default_is_refused_by_name, 1)
{
    (void)setenv("HVD_COMPRESSION", "topk:ratio=2", 1);
    CHECK_FAILS(hvd_init(NULL), HVD_INVALID_ARGUMENT, "HVD_COMPRESSION");
}

UNIT_MAIN(NULL, NULL)
