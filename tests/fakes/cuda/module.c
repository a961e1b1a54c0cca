/* SPDX-License-Identifier: Apache-2.0 */
/* Modules and kernels of the fake: an image is accepted by its first bytes (a cubin is
 * ELF, PTX starts with directives); a kernel "hvd_NAME" is the function cpu_NAME,
 * whose blocks run in a shuffled order on the stream's thread. Kernels of the tests
 * alone are in spin.c. */
#include "tests/fakes/cuda/fake_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fakes/cuda/kernels_cpu.h"

#define MAX_ARGS 4096

struct cu_module_s {
    int n;
};
struct cu_func_s { /* never used: a function is a row of cpu_kernels */
    int n;
};

struct fake_launch {
    const struct cpu_kernel *kernel;
    unsigned blocks;
    uint64_t seed;
    _Alignas(16) uint8_t args[MAX_ARGS];
};

int cuModuleLoadData(cu_module *ret, const void *image)
{
    bool is_elf = memcmp(image, "\177ELF", 4) == 0;
    FAKE_ENTER_SAFE();
    if (!is_elf && (!strstr(image, ".version") || !strstr(image, ".target")))
        return CU_INVALID_IMAGE;
    *ret = fake_zalloc(sizeof(**ret));
    return 0;
}

int cuModuleUnload(cu_module m)
{
    free(m);
    return fake_call(true);
}

int cuModuleGetFunction(cu_func *ret, cu_module m, const char *name)
{
    FAKE_ENTER(true);
    if (!m)
        return CU_INVALID_HANDLE;
    const struct cpu_kernel *k = cpu_kernel_find(name);
    if (!k)
        k = fake_test_kernel(name);
    if (!k)
        return CU_NOT_FOUND;
    *ret = (cu_func)(uintptr_t)k;
    return 0;
}

static int launch_run(void *arg)
{
    struct fake_launch *l = arg;
    char value[64];

    while (hvd_fake_strikes("kernel_hang") != 0)
        while (hvd_fake_fault("kernel_hang", value))
            usleep(100);
    int code = hvd_fake_strikes("kernel_error");
    if (code)
        return code;
    cpu_kernel_run(l->kernel, l->args, l->blocks, l->seed);
    return 0;
}

int cuLaunchKernel(cu_func f,
                   unsigned gx,
                   unsigned gy,
                   unsigned gz,
                   unsigned bx,
                   unsigned by,
                   unsigned bz,
                   unsigned shared_bytes,
                   cu_stream s,
                   void **params,
                   void **extra)
{
    static _Atomic uint64_t seed = 1;

    if (gx == 0 || gy != 1 || gz != 1 || bx != 256 || by != 1 || bz != 1
        || shared_bytes != 0 || !params || extra)
        return CU_INVALID_VALUE;
    struct fake_launch *l = fake_zalloc(sizeof(*l));
    l->kernel = (const struct cpu_kernel *)(uintptr_t)f;
    l->blocks = gx;
    l->seed = seed++ * 0x9e3779b97f4a7c15ull >> 20;
    if (l->kernel->args_bytes > MAX_ARGS)
        hvd_fake_die("%s: its argument is too large", l->kernel->symbol);
    memcpy(l->args, params[0], l->kernel->args_bytes);
    int rc = hvd_fake_enqueue(s, launch_run, l, sizeof(*l));
    free(l);
    return rc;
}
