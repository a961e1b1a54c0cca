/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA state of the process, as opposed to a world: the tables of the driver and of
 * NCCL, primary contexts and result memory. It stays until the process exits, because
 * results and events that users hold outlive the world. These are the mutable globals
 * of the backend, in one struct; its lock protects everything in it that is not
 * atomic. */
#include <errno.h>
#include <stdlib.h>

#include "runtime/backend/nccl/gpu.h"

#define MAX_ORDINALS 64

static struct {
    pthread_mutex_t lock;
    bool has_cuda, has_nccl;
    struct cuda_api cuda;
    struct nccl_api nccl;
    cu_ctx ctx[MAX_ORDINALS];
    struct gpu_memory *memory[MAX_ORDINALS];
    _Atomic bool has_leaked, is_forked;
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int init_cuda(struct err *err)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int rc = cuda_load(CUDA_LIBRARY, &process.cuda, err);

    if (rc < 0)
        return rc;
    int result = process.cuda.init(0);
    if (result == CU_NO_DEVICE && visible)
        return err_set(err, -ENODEV,
                       "no CUDA device is visible (CUDA_VISIBLE_DEVICES=\"%.100s\")",
                       visible);
    if (result == CU_NO_DEVICE)
        return err_set(err, -ENODEV,
                       "no CUDA device is present (nvidia-smi -L lists what the driver "
                       "shows this process)");
    if (result != CU_OK)
        return cuda_fail(&process.cuda, "cuInit", result, err);
    process.has_cuda = true;
    return 0;
}

int gpu_load_cuda(const struct cuda_api **ret, struct err *err)
{
    if (process.is_forked)
        return err_set(
            err, -ENODEV,
            "CUDA does not work in a forked child: start processes by spawn");
    (void)pthread_mutex_lock(&process.lock);
    int rc = process.has_cuda ? 0 : init_cuda(err);
    (void)pthread_mutex_unlock(&process.lock);
    if (rc == 0)
        *ret = &process.cuda;
    return rc;
}

int gpu_cuda_version(void)
{
    (void)pthread_mutex_lock(&process.lock);
    int version = process.cuda.version;
    (void)pthread_mutex_unlock(&process.lock);
    return version;
}

int gpu_load_nccl(const struct device_config *c,
                  const struct nccl_api **ret,
                  struct err *err)
{
    (void)pthread_mutex_lock(&process.lock);
    int rc = process.has_nccl ? 0 : nccl_load(c, &process.nccl, err);
    process.has_nccl = rc == 0;
    (void)pthread_mutex_unlock(&process.lock);
    if (rc == 0)
        *ret = &process.nccl;
    return rc;
}

/* lock is held. These CUDA calls are the first on a device and happen once. */
static int init_device(int ordinal,
                       cu_ctx *ret_ctx,
                       struct gpu_memory **ret,
                       uint64_t kept,
                       struct err *err)
{
    const struct cuda_api *cu = &process.cuda;
    struct gpu_scope scope;
    cu_device dev;
    cu_ctx ctx = NULL;
    int rc = CUDA_TRY(cu, device_get, err, &dev, ordinal);

    if (rc == 0)
        rc = CUDA_TRY(cu, ctx_retain, err, &ctx, dev);
    if (rc < 0)
        return rc;
    rc = gpu_enter_ctx(cu, ctx, &scope, err);
    if (rc == 0) {
        rc = memory_new(cu, ctx, dev, kept, ret, err);
        gpu_leave(&scope);
    }
    if (rc < 0)
        (void)cu->ctx_release(dev); /* restores the state before */
    else
        *ret_ctx = ctx;
    return rc;
}

int gpu_process_device(int ordinal,
                       uint64_t kept_bytes,
                       cu_ctx *ret_ctx,
                       struct gpu_memory **ret_memory,
                       struct err *err)
{
    int rc = 0;

    if (ordinal < 0 || ordinal >= MAX_ORDINALS)
        return err_set(err, -ENODEV, "there is no CUDA device %d", ordinal);
    (void)pthread_mutex_lock(&process.lock);
    if (!process.memory[ordinal])
        rc = init_device(ordinal, &process.ctx[ordinal], &process.memory[ordinal],
                         kept_bytes, err);
    if (rc == 0) {
        *ret_ctx = process.ctx[ordinal];
        *ret_memory = process.memory[ordinal];
    }
    (void)pthread_mutex_unlock(&process.lock);
    return rc;
}

void gpu_process_leak(void)
{
    process.has_leaked = true;
}

bool gpu_process_has_leaked(void)
{
    return process.has_leaked;
}

void gpu_process_forked(void)
{
    process.is_forked = true;
    (void)pthread_mutex_init(&process.lock,
                             NULL); /* its holder does not exist in this child */
    for (int i = 0; i < MAX_ORDINALS; i++)
        if (process.memory[i])
            memory_forget(process.memory[i]);
}

/* --- brackets --- */

int gpu_enter_ctx(const struct cuda_api *cu,
                  cu_ctx ctx,
                  struct gpu_scope *s,
                  struct err *err)
{
    *s = (struct gpu_scope){.cu = cu, .mode = CU_CAPTURE_RELAXED};
    if (process.is_forked)
        return err_set(
            err, -ENODEV,
            "CUDA does not work in a forked child: start processes by spawn");
    int rc = CUDA_TRY(cu, ctx_push, err, ctx);
    if (rc < 0)
        return rc;
    rc = CUDA_TRY(cu, capture_mode, err, &s->mode);
    if (rc < 0)
        (void)cu->ctx_pop(&(cu_ctx){NULL}); /* the first error is reported */
    s->is_in = rc == 0;
    return rc;
}

void gpu_leave(struct gpu_scope *s)
{
    if (!s->is_in)
        return;
    /* Both fail only if the driver has shut down. */
    (void)s->cu->capture_mode(&s->mode);
    (void)s->cu->ctx_pop(&(cu_ctx){NULL});
    s->is_in = false;
}

/* --- queries about a pointer --- */

int gpu_ordinal_of(const void *p)
{
    const struct cuda_api *cu = NULL;
    struct err ignored = ERR_INIT;
    unsigned type = 0;
    int ordinal = -1;

    if (gpu_load_cuda(&cu, &ignored) < 0 || !cu
        || cu->pointer_attr(&type, CU_POINTER_MEMORY_TYPE, (cu_ptr)(uintptr_t)p)
               != CU_OK
        || type != CU_MEMORY_DEVICE
        || cu->pointer_attr(&ordinal, CU_POINTER_ORDINAL, (cu_ptr)(uintptr_t)p)
               != CU_OK)
        return -EINVAL;
    return ordinal;
}

/* The stream on which p is freed. In a stream that captures, the free would become
 * part of the graph, where it is not allowed. Work before the capture has finished,
 * because the capturing thread ensures that, and captured work must not use results. */
static cu_stream stream_of(const struct gpu_memory *m, void *stream)
{
    cu_stream s = stream == DEVICE_STREAM_ALL ? NULL : stream;
    int status = CU_CAPTURE_NONE, rc = process.cuda.stream_capturing(s, &status);

    return rc == CU_CAPTURE_IMPLICIT || status != CU_CAPTURE_NONE ? memory_own(m) : s;
}

/* Memory that was never used may be freed before its allocation is reached. */
static void let_begin(const struct gpu_memory *m, cu_stream s)
{
    const struct cuda_api *cu = &process.cuda;
    cu_stream own = memory_own(m);
    cu_event e;

    if (s == own || cu->stream_query(own) != CU_NOT_READY
        || cu->event_new(&e, CU_EVENT_DISABLE_TIMING) != CU_OK)
        return;
    if (cu->event_record(e, own) == CU_OK)
        (void)cu->stream_wait(s, e,
                              0); /* the stream no longer exists: memory_give handles
                                     that */
    (void)cu->event_free(e);
}

void gpu_free(void *p, void *stream)
{
    struct err ignored = ERR_INIT; /* what cannot be freed is leaked */
    struct gpu_scope scope;

    if (!p || process.is_forked)
        return;
    int ordinal = gpu_ordinal_of(p);
    if (ordinal < 0 || ordinal >= MAX_ORDINALS)
        return;
    (void)pthread_mutex_lock(&process.lock);
    cu_ctx ctx = process.ctx[ordinal];
    struct gpu_memory *m = process.memory[ordinal];
    (void)pthread_mutex_unlock(&process.lock);
    if (!m || gpu_enter_ctx(&process.cuda, ctx, &scope, &ignored) < 0)
        return;
    cu_stream s = stream_of(m, stream);
    let_begin(m, s);
    memory_give(m, (cu_ptr)(uintptr_t)p, s);
    gpu_leave(&scope);
}
