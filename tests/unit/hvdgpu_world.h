/* SPDX-License-Identifier: Apache-2.0 */
/* A world of processes (hvd_world.h) in which each rank has a GPU of the fake driver
 * and all of them the fake NCCL, behind the row of libhvd_cuda.so itself. Include in
 * one file of a program. */
#ifndef TESTS_UNIT_HVDGPU_WORLD_H
#define TESTS_UNIT_HVDGPU_WORLD_H

#include "tests/unit/hvd_world.h"

#include <dlfcn.h>

#include "runtime/backend/device.h"
#include "runtime/backend/nccl/cuda_dl.h"
#include "runtime/backend/nccl/image.h"

extern const struct device_ops *const hvd_device_linked;
const struct device_ops *const hvd_device_linked = &hvd_cuda_device_ops;

/* In a child: n floats on the GPU of this rank, which the host may look at too (it is
 * the fake's); they live as long as the process. */
static float *floats_on_gpu(int rank, size_t n)
{
    static struct cuda_api cu;
    struct err err = ERR_INIT;
    cu_device dev;
    cu_ctx ctx;
    cu_ptr p;

    if (!cu.init) {
        CHECK(cuda_load(CUDA_LIBRARY, &cu, &err) == 0, "%s", err.text);
        CHECK(cu.init(0) == 0 && cu.device_get(&dev, rank) == 0
                  && cu.ctx_retain(&ctx, dev) == 0 && cu.ctx_push(ctx) == 0,
              "no context");
    }
    CHECK(cu.mem_alloc(&p, n * sizeof(float)) == 0, "no memory");
    return (float *)(uintptr_t)p;
}

static inline int
sum_on_gpu(int rank, const char *name, float *v, int64_t n, int set, hvd_handle *h)
{
    struct hvd_tensor t = tensor_1d(name, HVD_FLOAT32, v, v, &n);

    t.device = rank;
    return hvd_allreduce_async(&t, HVD_SUM, 1, 1, set, h);
}

/* The operation that the call submits, of handle h, ends well. */
#define CHECK_END(call) CHECK_OK(wait_release_if(call, &h))

/* The status of a sum that has ended. */
static inline int sum_gpu_now(int rank, const char *name, float *v, int64_t n, int set)
{
    hvd_handle h;

    return wait_release_if(sum_on_gpu(rank, name, v, n, set, &h), &h);
}

/* How this process' communicators began (nccl_fake.h), into its report. */
static inline void report_begun(int rank)
{
    void *lib = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
    char *(*begun)(void), *text;

    CHECK(lib, "NCCL is not loaded");
    *(void **)&begun = dlsym(lib, "fake_nccl_begun");
    text = begun();
    (void)snprintf(shared->r[rank].text, sizeof(shared->r[rank].text), "%s", text);
    free(text);
}

static bool has_kernels(void)
{
    struct err err = ERR_INIT;

    return image_count(kernels_image, (size_t)(kernels_image_end - kernels_image), &err)
           != 0; /* KERNELS=none */
}

/* Of ranks to come. */
static void use_nccl(const char *version)
{
    (void)setenv("HVD_FAKE_GPUS", "8", 1);
    (void)setenv("HVD_FAKE_HANG_S", "30", 1);
    (void)setenv("HVD_FAKE_NCCL", version, 1);
}

/* A world with this NCCL; without kernels the test is skipped. */
static inline void gpu_world_run(const char *version, int size, rank_fn body)
{
    if (!has_kernels())
        skip();
    use_nccl(version);
    world_run(size, body);
}

static inline void gpu_world_run_usual(int size, rank_fn body)
{
    gpu_world_run("22705", size, body);
}
/* A test that runs one world (WORLD_TEST) with GPUs. */
#define GPU_WORLD_TEST(name, size) WORLD_TEST_BY(name, gpu_world_run_usual, size, )

#endif
