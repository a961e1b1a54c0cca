/* SPDX-License-Identifier: Apache-2.0 */
/* Modules and kernels of the fake: an image is accepted by its look (a cubin is ELF,
 * PTX begins with its directives), a kernel "hvd_NAME" is the function cpu_NAME, whose
 * blocks run in a shuffled order on the stream's thread. */
#include "tests/fakes/cuda/fake_cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define MAX_ARGS 4096

typedef void (*kernel_fn)(const void *args, unsigned block, unsigned blocks);
struct cu_module_s {
    int n;
};
struct cu_func_s {
    char name[64];
    kernel_fn fn;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cu_func_s funcs[256];
static size_t n_funcs;

struct launch {
    kernel_fn fn;
    unsigned blocks;
    uint32_t seed;
    size_t bytes;
    _Alignas(16) uint8_t args[MAX_ARGS];
};

static struct cu_func_s *find(const char *name)
{
    for (size_t i = 0; i < n_funcs; i++)
        if (strcmp(funcs[i].name, name) == 0)
            return &funcs[i];
    return NULL;
}

static struct cu_func_s *add(const char *name, kernel_fn fn)
{
    struct cu_func_s *f = find(name);

    if (!f && n_funcs == sizeof funcs / sizeof funcs[0])
        hvd_fake_die("too many kernels");
    f = f ? f : &funcs[n_funcs++];
    (void)snprintf(f->name, sizeof f->name, "%s", name);
    f->fn = fn;
    return f;
}

void hvd_fake_kernel(const char *name, kernel_fn fn)
{
    char full[64];

    (void)snprintf(full, sizeof full, "hvd_%s", name);
    pthread_mutex_lock(&lock);
    (void)add(full, fn);
    pthread_mutex_unlock(&lock);
}

EXPORT int cuModuleLoadData(cu_module *ret, const void *image);
int cuModuleLoadData(cu_module *ret, const void *image)
{
    char value[64];
    bool is_elf = memcmp(image, "\177ELF", 4) == 0;
    int r = fake_call(true);

    r = r ? r : fake_unsafe();
    if (r)
        return r;
    if (hvd_fake_fault("module_error", value))
        return atoi(value);
    if (!is_elf && (!strstr(image, ".version") || !strstr(image, ".target")))
        return CU_INVALID_IMAGE;
    if (!is_elf && hvd_fake_fault("ptx_unsupported", value))
        return CU_UNSUPPORTED_PTX;
    *ret = calloc(1, sizeof **ret);
    return *ret ? 0 : CU_OUT_OF_MEMORY;
}

EXPORT int cuModuleUnload(cu_module m);
int cuModuleUnload(cu_module m)
{
    free(m);
    return fake_call(true);
}

static kernel_fn function(const char *name)
{
    char own[64];
    kernel_fn fn;

    (void)snprintf(own, sizeof own, "cpu_%s", name + 4);
    void *p = dlsym(RTLD_DEFAULT, own);
    if (!p) {
        Dl_info me;
        void *self = dladdr((void *)(uintptr_t)cuModuleLoadData, &me)
                         ? dlopen(me.dli_fname, RTLD_NOW | RTLD_NOLOAD)
                         : NULL;
        p = self ? dlsym(self, own) : NULL;
        if (self)
            (void)dlclose(self);
    }
    memcpy(&fn, &p, sizeof fn);
    return fn;
}

EXPORT int cuModuleGetFunction(cu_func *ret, cu_module m, const char *name);
int cuModuleGetFunction(cu_func *ret, cu_module m, const char *name)
{
    int r = fake_call(true);

    if (r || !m)
        return r ? r : CU_INVALID_HANDLE;
    if (strncmp(name, "hvd_", 4) != 0)
        return CU_NOT_FOUND;
    pthread_mutex_lock(&lock);
    struct cu_func_s *f = find(name);
    kernel_fn fn = f ? f->fn : function(name);
    if (!f && fn)
        f = add(name, fn);
    pthread_mutex_unlock(&lock);
    if (!f)
        return CU_NOT_FOUND;
    *ret = f;
    return 0;
}

static int run(void *arg)
{
    struct launch *l = arg;
    char value[64];
    unsigned n = l->blocks;

    while (hvd_fake_strikes("kernel_hang") != 0)
        while (hvd_fake_fault("kernel_hang", value))
            usleep(100);
    int code = hvd_fake_strikes("kernel_error");
    if (code)
        return code;
    unsigned *order = malloc(n * sizeof *order);
    if (!order)
        hvd_fake_die("out of memory");
    for (unsigned i = 0; i < n; i++) {
        l->seed = l->seed * 1664525u + 1013904223u;
        unsigned j = (unsigned)(((uint64_t)l->seed * (i + 1)) >> 32);
        order[i] = order[j];
        order[j] = i;
    }
    for (unsigned i = 0; i < n; i++)
        l->fn(l->args, order[i], n);
    free(order);
    return 0;
}

/* The driver knows the size of the arguments from the image; here what can be read
 * behind their beginning is taken, which the kernel's C form does not look at. */
static void copy_args(struct launch *l, void **params, void **extra)
{
    if (extra) { /* CU_LAUNCH_PARAM_BUFFER_POINTER 1, _SIZE 2, END 0 */
        const void *p = NULL;
        for (; *extra; extra += 2) {
            if (*extra == (void *)1)
                p = extra[1];
            else
                l->bytes = *(const size_t *)extra[1];
        }
        if (!p || l->bytes > MAX_ARGS)
            hvd_fake_die("cuLaunchKernel: bad argument buffer");
        memcpy(l->args, p, l->bytes);
        return;
    }
    struct iovec to = {.iov_base = l->args, .iov_len = MAX_ARGS},
                 from[2] = {{.iov_base = params[0]}};
    size_t in_page = 4096 - ((uintptr_t)params[0] & 4095);
    from[0].iov_len = in_page;
    from[1] = (struct iovec){.iov_base = (uint8_t *)params[0] + in_page,
                             .iov_len = MAX_ARGS - in_page};
    if (syscall(SYS_process_vm_readv, getpid(), &to, 1ul, from, 2ul, 0ul) <= 0)
        hvd_fake_die("cuLaunchKernel: the arguments cannot be read");
}

EXPORT int cuLaunchKernel(cu_func f,
                          unsigned gx,
                          unsigned gy,
                          unsigned gz,
                          unsigned bx,
                          unsigned by,
                          unsigned bz,
                          unsigned shared_bytes,
                          cu_stream s,
                          void **params,
                          void **extra);
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
    static _Atomic uint32_t seed = 1;

    if (gx == 0 || gy != 1 || gz != 1 || bx != 256 || by != 1 || bz != 1
        || shared_bytes != 0)
        return CU_INVALID_VALUE;
    struct launch *l = calloc(1, sizeof *l);
    if (!l)
        hvd_fake_die("out of memory");
    l->fn = f->fn;
    l->blocks = gx;
    l->seed = seed++;
    copy_args(l, params, extra);
    int r = hvd_fake_enqueue(s, run, l, sizeof *l);
    free(l);
    return r;
}
