/* SPDX-License-Identifier: Apache-2.0 */
/* A training process on a GPU, without a framework: forms the world and sums a
 * tensor in the memory of GPU `local rank` (or HVD_TEST_DEVICE).
 *
 *   launch-gpu-world STEPS [FOLDER]   0: until it fails; creates FOLDER/up.RANK, with its
 *                                     pid, after the third sum
 *
 * Without that GPU it passes CPU memory as that of the GPU. It exits with 1 if the
 * runtime fails, like a Python program. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hvd.h"

enum { NUMBERS = 1000 };

static void hvd_check(int rc)
{
    if (rc == HVD_OK)
        return;
    (void)fprintf(stderr, "HorovodInternalError: %s\n", hvd_last_error());
    exit(1);
}

static void *cuda_symbol(const char *name)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW);
    void *p = lib ? dlsym(lib, name) : NULL;

    if (p)
        return p;
    (void)fprintf(stderr, "launch-gpu-world: %s\n", dlerror());
    exit(2);
}

/* Memory of a GPU, in its primary context, as frameworks have it. */
static void *device_memory(int ordinal, size_t bytes)
{
    int (*init)(unsigned), (*device)(int *, int), (*retain)(void **, int),
        (*push)(void *), (*alloc)(void **, size_t), d;
    static float host[NUMBERS];
    void *ctx, *p;

    *(void **)&init = cuda_symbol("cuInit");
    *(void **)&device = cuda_symbol("cuDeviceGet");
    *(void **)&retain = cuda_symbol("cuDevicePrimaryCtxRetain");
    *(void **)&push = cuda_symbol("cuCtxPushCurrent_v2");
    *(void **)&alloc = cuda_symbol("cuMemAlloc_v2");
    if (init(0) == 0 && device(&d, ordinal) == 0 && retain(&ctx, d) == 0
        && push(ctx) == 0 && alloc(&p, bytes) == 0)
        return p;
    return host; /* the runtime must print why not */
}

static void world_step(int device, void *p)
{
    const int64_t shape[1] = {NUMBERS};
    struct hvd_tensor t = {.size_bytes = sizeof(t),
                           .name = "gradient",
                           .data = p,
                           .output = p,
                           .dtype = HVD_FLOAT32,
                           .ndim = 1,
                           .shape = shape,
                           .device = device};
    hvd_handle h;

    hvd_check(
        hvd_allreduce_async(&t, HVD_SUM, 0.5, 1, 0, &h)); /* by a kernel of ours */
    hvd_check(hvd_wait(h, -1));
    hvd_check(hvd_release(h));
}

static void tell_up(const char *folder)
{
    char path[4096], part[4096 + 8];

    (void)snprintf(path, sizeof(path), "%s/up.%d", folder, hvd_rank());
    (void)snprintf(part, sizeof(part), "%s.part", path);
    FILE *f = fopen(part, "w");
    if (!f || fprintf(f, "%d\n", (int)getpid()) < 0 || fclose(f) != 0
        || rename(part, path) < 0)
        exit(2);
}

int main(int argc, char **argv)
{
    const int steps = argc > 1 ? atoi(argv[1]) : 3;

    hvd_check(hvd_init(NULL));
    const char *given = getenv("HVD_TEST_DEVICE");
    const int device = given ? atoi(given) : hvd_local_rank();
    void *p = device_memory(device, NUMBERS * sizeof(float));
    for (int i = 0; steps == 0 || i < steps; i++) {
        world_step(device, p);
        if (i == 2 && argc > 2)
            tell_up(argv[2]);
    }
    hvd_check(hvd_shutdown());
    (void)printf("done\n");
    return 0;
}
