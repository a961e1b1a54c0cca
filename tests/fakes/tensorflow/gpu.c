/* SPDX-License-Identifier: Apache-2.0 */
/* TensorFlow's device "GPU" on the fake driver: a plug-in for
 * TensorFlow's load_pluggable_device_library. So TensorFlow of processors places
 * tensors on a GPU, copies them there and back, takes their memory from its allocator,
 * and runs what has kernels for "GPU" there: ours, and one of its own, Rint of floats,
 * which as all of TensorFlow's kernels only puts work into TensorFlow's stream: SLOW_US
 * of it. An operation that does not wait for that stream reads what was there before,
 * or writes to memory that is still read.
 *
 * The interface is pluggable.h. Streams, events and memory are the driver's.
 *
 * All calls may come from any thread; the context is made current in each. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fakes/tensorflow/pluggable.h"

#define SLOW_US                              2000
#define MEMORY                               (4096LL << 20)

#define PROTOTYPE(name, symbol, least, args) extern int symbol args;
CUDA_SYMBOLS(PROTOTYPE)
#undef PROTOTYPE

EXPORT void SE_InitPlugin(struct se_registration *r, struct TF_Status *s);
EXPORT void TF_InitKernel(void);

/* --- the driver --- */

static void context_enter(const struct sp_device *d)
{
    if (cuCtxPushCurrent_v2(d->handle) != CU_OK)
        hvd_fake_die("tensorflow's plug-in: no context");
}

static void context_leave(void)
{
    cu_ctx was;

    (void)cuCtxPopCurrent_v2(&was);
}

/* Nothing that TensorFlow does may fail here. */
#define DO(d, stream_call_host)                                                        \
    do {                                                                               \
        context_enter(d);                                                              \
        if ((stream_call_host) != CU_OK)                                               \
            hvd_fake_die("tensorflow's plug-in: %s failed", #stream_call_host);        \
        context_leave();                                                               \
    } while (0)

static cu_ptr memory_address(const struct sp_memory *m)
{
    return (cu_ptr)(uintptr_t)m->opaque;
}

static void memory_allocate(const struct sp_device *d,
                            uint64_t n,
                            int64_t space,
                            struct sp_memory *m)
{
    cu_ptr p;

    DO(d, cuMemAlloc_v2(&p, n));
    *m =
        (struct sp_memory){.size = m->size, .opaque = (void *)(uintptr_t)p, .bytes = n};
}

static void memory_free(const struct sp_device *d, struct sp_memory *m)
{
    if (m->opaque)
        DO(d, cuMemFree_v2(memory_address(m)));
    m->opaque = NULL;
}

static void *host_allocate(const struct sp_device *d, uint64_t n)
{
    void *p;

    DO(d, cuMemHostAlloc(&p, n, 0));
    return p;
}

static void host_deallocate(const struct sp_device *d, void *p)
{
    DO(d, cuMemFreeHost(p));
}

static unsigned char device_stats(const struct sp_device *d, void *ret)
{
    return 0;
}

static unsigned char
device_memory_usage(const struct sp_device *d, int64_t *ret_free, int64_t *ret_all)
{
    *ret_free = *ret_all = MEMORY;
    return 1;
}

/* --- streams and events --- */

static void stream_new(const struct sp_device *d, cu_stream *ret, struct TF_Status *s)
{
    DO(d, cuStreamCreateWithPriority(ret, CU_STREAM_NON_BLOCKING, 0));
}

static void stream_free(const struct sp_device *d, cu_stream x)
{
    DO(d, cuStreamDestroy_v2(x));
}

static void event_new(const struct sp_device *d, cu_event *ret, struct TF_Status *s)
{
    DO(d, cuEventCreate(ret, CU_EVENT_DISABLE_TIMING));
}

static void event_free(const struct sp_device *d, cu_event e)
{
    DO(d, cuEventDestroy_v2(e));
}

static int event_status(const struct sp_device *d, cu_event e)
{
    int rc;

    context_enter(d);
    rc = cuEventQuery(e);
    context_leave();
    return rc == CU_OK ? 3 : rc == CU_NOT_READY ? 2 : 1; /* complete, pending, error */
}

static void
event_record(const struct sp_device *d, cu_stream x, cu_event e, struct TF_Status *s)
{
    DO(d, cuEventRecord(e, x));
}

static void
event_wait(const struct sp_device *d, cu_stream x, cu_event e, struct TF_Status *s)
{
    DO(d, cuStreamWaitEvent(x, e, 0));
}

static void event_block(const struct sp_device *d, cu_event e, struct TF_Status *s)
{
    while (event_status(d, e) == 2)
        (void)usleep(50);
}

static void stream_block(const struct sp_device *d, cu_stream x, struct TF_Status *s)
{
    cu_event e;

    event_new(d, &e, s);
    event_record(d, x, e, s);
    event_block(d, e, s);
    event_free(d, e);
}

static void stream_depend(const struct sp_device *d,
                          cu_stream x,
                          cu_stream other,
                          struct TF_Status *s)
{
    cu_event e;

    event_new(d, &e, s);
    event_record(d, other, e, s);
    event_wait(d, x, e, s);
    event_free(d, e);
}

static void stream_status(const struct sp_device *d, cu_stream x, struct TF_Status *s)
{
    TF_SetStatus(s, TF_OK, "");
}

static void sync_all(const struct sp_device *d, struct TF_Status *s)
{
    DO(d, cuCtxSynchronize());
}

static void timer_new(const struct sp_device *d, void **ret, struct TF_Status *s)
{
    *ret = NULL;
}

static void timer_free(const struct sp_device *d, void *timer) {}

static void
timer_start(const struct sp_device *d, cu_stream x, void *timer, struct TF_Status *s)
{
}

static void
timer_stop(const struct sp_device *d, cu_stream x, void *timer, struct TF_Status *s)
{
}

static uint64_t timer_nanoseconds(void *timer)
{
    return 1;
}

struct call {
    void (*fn)(void *, struct TF_Status *);
    void *arg;
};

static int run_call(void *arg)
{
    const struct call *c = arg;
    struct TF_Status *s = TF_NewStatus();

    c->fn(c->arg, s);
    TF_DeleteStatus(s);
    return 0;
}

static unsigned char stream_call_host(const struct sp_device *d,
                                      cu_stream x,
                                      void (*fn)(void *, struct TF_Status *),
                                      void *arg)
{
    struct call c = {fn, arg};

    DO(d, hvd_fake_enqueue(x, run_call, &c, sizeof(c)));
    return 1;
}

/* --- copies --- */

static void copy_down(const struct sp_device *d,
                      cu_stream x,
                      void *to,
                      const struct sp_memory *from,
                      uint64_t n,
                      struct TF_Status *s)
{
    if (n > 0)
        DO(d, cuMemcpyDtoHAsync_v2(to, memory_address(from), n, x));
}

static void copy_up(const struct sp_device *d,
                    cu_stream x,
                    struct sp_memory *to,
                    const void *from,
                    uint64_t n,
                    struct TF_Status *s)
{
    if (n > 0)
        DO(d, cuMemcpyHtoDAsync_v2(memory_address(to), from, n, x));
}

static void memory_copy(const struct sp_device *d,
                        cu_stream x,
                        struct sp_memory *to,
                        const struct sp_memory *from,
                        uint64_t n,
                        struct TF_Status *s)
{
    if (n > 0)
        DO(d, cuMemcpyDtoDAsync_v2(memory_address(to), memory_address(from), n, x));
}

/* On the legacy stream, which is waited for. */
static void copy_down_now(const struct sp_device *d,
                          void *to,
                          const struct sp_memory *from,
                          uint64_t n,
                          struct TF_Status *s)
{
    copy_down(d, NULL, to, from, n, s);
    stream_block(d, NULL, s);
}

static void copy_up_now(const struct sp_device *d,
                        struct sp_memory *to,
                        const void *from,
                        uint64_t n,
                        struct TF_Status *s)
{
    copy_up(d, NULL, to, from, n, s);
    stream_block(d, NULL, s);
}

static void copy_now(const struct sp_device *d,
                     struct sp_memory *to,
                     const struct sp_memory *from,
                     uint64_t n,
                     struct TF_Status *s)
{
    memory_copy(d, NULL, to, from, n, s);
    stream_block(d, NULL, s);
}

static void memory_set8(const struct sp_device *d,
                        cu_stream x,
                        struct sp_memory *to,
                        uint8_t value,
                        uint64_t n,
                        struct TF_Status *s)
{
    if (n > 0)
        DO(d, cuMemsetD8Async(memory_address(to), value, n, x));
}

static void memory_zero(const struct sp_device *d,
                        cu_stream x,
                        struct sp_memory *to,
                        uint64_t n,
                        struct TF_Status *s)
{
    memory_set8(d, x, to, 0, n, s);
}

struct words {
    uint32_t *to, value;
    uint64_t n;
};

static int set_words(void *arg)
{
    const struct words *w = arg;

    for (uint64_t i = 0; i < w->n; i++)
        w->to[i] = w->value;
    return 0;
}

static void memory_set32(const struct sp_device *d,
                         cu_stream x,
                         struct sp_memory *to,
                         uint32_t value,
                         uint64_t n,
                         struct TF_Status *s)
{
    struct words w = {to->opaque, value, n / 4};

    DO(d, hvd_fake_enqueue(x, set_words, &w, sizeof(w)));
}

/* --- a kernel --- */

struct rint_work {
    float *to;
    const float *from;
    int64_t n;
};

static int rint_floats(void *arg)
{
    const struct rint_work *w = arg;

    (void)usleep(SLOW_US);
    for (int64_t i = 0; i < w->n; i++)
        w->to[i] = rintf(w->from[i]);
    return 0;
}

/* Returns before its work is done, and keeps nothing alive for it. */
static void rint_compute(void *kernel, struct TF_OpKernelContext *c)
{
    struct TF_Status *s = TF_NewStatus();
    struct TF_Tensor *in = NULL, *out;
    struct sp_device d = {.size = sizeof(d)};
    struct rint_work w;
    cu_stream x;
    int64_t n;

    TF_GetInput(c, 0, &in, s);
    n = (int64_t)(TF_TensorByteSize(in) / sizeof(float));
    out = TF_AllocateOutput(c, 0, TF_FLOAT, &n, 1, TF_TensorByteSize(in), s);
    w = (struct rint_work){TF_TensorData(out), TF_TensorData(in), n};
    x = TF_GetStream(c, s);
    if (TF_GetCode(s) != TF_OK)
        hvd_fake_die("tensorflow's plug-in: Rint: %s", TF_Message(s));
    d.handle = x->ctx;
    DO(&d, hvd_fake_enqueue(x, rint_floats, &w, sizeof(w)));
    TF_DeleteTensor(in);
    TF_DeleteTensor(out);
    TF_DeleteStatus(s);
}

void TF_InitKernel(void)
{
    struct TF_Status *s = TF_NewStatus();

    TF_RegisterKernelBuilder(
        "Rint", TF_NewKernelBuilder("Rint", "GPU", NULL, rint_compute, NULL), s);
    TF_DeleteStatus(s);
}

/* --- the platform --- */

static void
platform_count_devices(const struct sp_platform *p, int *ret, struct TF_Status *s)
{
    if (cuInit(0) != CU_OK || cuDeviceGetCount(ret) != CU_OK)
        *ret = 0;
}

static void
device_new(const struct sp_platform *p, struct sp_device_params *q, struct TF_Status *s)
{
    struct sp_device *d = q->device;
    cu_device dev;
    cu_ctx ctx;

    if (cuDeviceGet(&dev, q->ordinal) != CU_OK
        || cuDevicePrimaryCtxRetain(&ctx, dev) != CU_OK)
        hvd_fake_die("tensorflow's plug-in: no device %d", (int)q->ordinal);
    *d = (struct sp_device){.size = sizeof(*d),
                            .ordinal = q->ordinal,
                            .handle = ctx,
                            .hardware = "fake",
                            .vendor = "fake",
                            .pci = "0000:00:00.0"};
}

static void
fns_new(const struct sp_platform *p, struct sp_params *q, struct TF_Status *s)
{
    *(struct sp_device_fns *)q->what =
        (struct sp_device_fns){.size = sizeof(struct sp_device_fns)};
}

static void no_unified_allocate(void) {}

static void no_unified_free(void) {}

/* What TensorFlow's executor has, in its order. */
#define EXECUTOR(X)                                                                    \
    X(memory_allocate);                                                                \
    X(memory_free);                                                                    \
    X(host_allocate);                                                                  \
    X(host_deallocate);                                                                \
    X(no_unified_allocate);                                                            \
    X(no_unified_free);                                                                \
    X(device_stats);                                                                   \
    X(device_memory_usage);                                                            \
    X(stream_new);                                                                     \
    X(stream_free);                                                                    \
    X(stream_depend);                                                                  \
    X(stream_status);                                                                  \
    X(event_new);                                                                      \
    X(event_free);                                                                     \
    X(event_status);                                                                   \
    X(event_record);                                                                   \
    X(event_wait);                                                                     \
    X(timer_new);                                                                      \
    X(timer_free);                                                                     \
    X(timer_start);                                                                    \
    X(timer_stop);                                                                     \
    X(copy_down);                                                                      \
    X(copy_up);                                                                        \
    X(memory_copy);                                                                    \
    X(copy_down_now);                                                                  \
    X(copy_up_now);                                                                    \
    X(copy_now);                                                                       \
    X(event_block);                                                                    \
    X(stream_block);                                                                   \
    X(sync_all);                                                                       \
    X(memory_zero);                                                                    \
    X(memory_set8);                                                                    \
    X(memory_set32);                                                                   \
    X(stream_call_host)
#define MEMBER(f) __typeof__(f) *f##_fn
#define SET(f)    e->f##_fn = f
struct sp_executor {
    size_t size;
    void *ext;
    EXECUTOR(MEMBER);
};

static void
executor_new(const struct sp_platform *p, struct sp_params *q, struct TF_Status *s)
{
    struct sp_executor *e = q->what;

    *e = (struct sp_executor){.size = sizeof(*e)};
    EXECUTOR(SET);
    e->no_unified_allocate_fn = e->no_unified_free_fn = NULL;
}

static void timer_fns_new(const struct sp_platform *p,
                          struct sp_timer_fns *ret,
                          struct TF_Status *s)
{
    *ret =
        (struct sp_timer_fns){.size = sizeof(*ret), .nanoseconds = timer_nanoseconds};
}

static void nothing_to_free(const struct sp_platform *p, void *what) {}

static void ignore_pointer(void *what) {}

struct sp_platform_fns {
    size_t size;
    void *ext;
    __typeof__(platform_count_devices) *count;
    __typeof__(device_new) *device_new;
    __typeof__(nothing_to_free) *device_free;
    __typeof__(fns_new) *fns_new;
    __typeof__(nothing_to_free) *fns_free;
    __typeof__(executor_new) *executor_new;
    __typeof__(nothing_to_free) *executor_free;
    __typeof__(timer_fns_new) *timer_new;
    __typeof__(nothing_to_free) *timer_free;
};

void SE_InitPlugin(struct se_registration *r, struct TF_Status *s)
{
    r->size = sizeof(*r);
    r->major = r->minor = 0;
    r->patch = 1;
    *r->platform = (struct sp_platform){.size = sizeof(*r->platform),
                                        .name = "FAKE_CUDA",
                                        .type = "GPU",
                                        .uses_bfc = 1,
                                        .grows = 1};
    *r->fns = (struct sp_platform_fns){.size = sizeof(*r->fns),
                                       .count = platform_count_devices,
                                       .device_new = device_new,
                                       .device_free = nothing_to_free,
                                       .fns_new = fns_new,
                                       .fns_free = nothing_to_free,
                                       .executor_new = executor_new,
                                       .executor_free = nothing_to_free,
                                       .timer_new = timer_fns_new,
                                       .timer_free = nothing_to_free};
    r->platform_free = ignore_pointer;
    r->fns_free = ignore_pointer;
}
