/* SPDX-License-Identifier: Apache-2.0 */
/* Modules and kernels of the fake: an image is accepted by its first bytes (a cubin is
 * ELF, PTX starts with directives); a kernel "hvd_NAME" is the function cpu_NAME,
 * whose blocks run in a shuffled order on the stream's thread. */
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
struct cu_func_s {
    char name[64];
    struct cpu_kernel kernel;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cu_func_s funcs[256];
static size_t n_funcs;

struct fake_launch {
    struct cpu_kernel kernel;
    unsigned blocks;
    uint64_t seed;
    _Alignas(16) uint8_t args[MAX_ARGS];
};

static struct cu_func_s *func_find(const char *name)
{
    for (size_t i = 0; i < n_funcs; i++)
        if (strcmp(funcs[i].name, name) == 0)
            return &funcs[i];
    return NULL;
}

static struct cu_func_s *func_add(const char *name, const struct cpu_kernel *k)
{
    struct cu_func_s *f = func_find(name);

    if ((!f && n_funcs == sizeof(funcs) / sizeof(funcs[0])) || k->args_bytes > MAX_ARGS)
        hvd_fake_die("too many kernels, or too large an argument: %s", name);
    f = f ? f : &funcs[n_funcs++];
    (void)snprintf(f->name, sizeof(f->name), "%s", name);
    f->kernel = *k;
    return f;
}

void hvd_fake_kernel(const char *name,
                     size_t args_bytes,
                     void (*block)(const void *args, unsigned block, unsigned blocks))
{
    char full[64];

    (void)snprintf(full, sizeof(full), "hvd_%s", name);
    pthread_mutex_lock(&lock);
    (void)func_add(full,
                   &(struct cpu_kernel){.args_bytes = args_bytes, .block = block});
    pthread_mutex_unlock(&lock);
}

int cuModuleLoadData(cu_module *ret, const void *image)
{
    char value[64];
    bool is_elf = memcmp(image, "\177ELF", 4) == 0;
    int rc = fake_call(true);

    rc = rc ? rc : fake_unsafe();
    if (rc)
        return rc;
    if (hvd_fake_fault("module_error", value))
        return atoi(value);
    if (!is_elf && (!strstr(image, ".version") || !strstr(image, ".target")))
        return CU_INVALID_IMAGE;
    if (!is_elf && hvd_fake_fault("ptx_unsupported", value))
        return CU_UNSUPPORTED_PTX;
    *ret = calloc(1, sizeof **ret);
    return *ret ? 0 : CU_OUT_OF_MEMORY;
}

int cuModuleUnload(cu_module m)
{
    free(m);
    return fake_call(true);
}

int cuModuleGetFunction(cu_func *ret, cu_module m, const char *name)
{
    int rc = fake_call(true);

    if (rc || !m)
        return rc ? rc : CU_INVALID_HANDLE;
    if (strncmp(name, "hvd_", 4) != 0)
        return CU_NOT_FOUND;
    pthread_mutex_lock(&lock);
    struct cu_func_s *f = func_find(name);
    const struct cpu_kernel *k = f ? NULL : cpu_kernel_find(name);
    if (k)
        f = func_add(name, k);
    pthread_mutex_unlock(&lock);
    if (!f)
        return CU_NOT_FOUND;
    *ret = f;
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
    cpu_kernel_run(&l->kernel, l->args, l->blocks, l->seed);
    return 0;
}

static void copy_args(struct fake_launch *l, void **params, void **extra)
{
    const void *p = params ? params[0] : NULL;
    size_t bytes = l->kernel.args_bytes;

    while (extra && *extra) { /* CU_LAUNCH_PARAM_BUFFER_POINTER 1, _SIZE 2, END 0 */
        if (*extra == (void *)1)
            p = extra[1];
        else
            bytes = *(const size_t *)extra[1];
        extra += 2;
    }
    if (!p || bytes != l->kernel.args_bytes)
        hvd_fake_die("cuLaunchKernel: arguments of %zu bytes, not %zu", bytes,
                     l->kernel.args_bytes);
    memcpy(l->args, p, bytes);
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
        || shared_bytes != 0)
        return CU_INVALID_VALUE;
    struct fake_launch *l = calloc(1, sizeof(*l));
    if (!l)
        hvd_fake_die("out of memory");
    l->kernel = f->kernel;
    l->blocks = gx;
    l->seed = seed++ * 0x9e3779b97f4a7c15ull >> 20;
    copy_args(l, params, extra);
    int rc = hvd_fake_enqueue(s, launch_run, l, sizeof(*l));
    free(l);
    return rc;
}
