/* SPDX-License-Identifier: Apache-2.0 */
/* Devices, contexts, streams and events of the fake. A context is the primary one of a
 * device; the stack of current ones is the thread's. */
#include "tests/fakes/cuda/fake_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct fake fake = {.lock = PTHREAD_MUTEX_INITIALIZER,
                    .moved = PTHREAD_COND_INITIALIZER};
_Atomic unsigned long fake_n_calls;
static struct {
    const char *cuda, *gpus, *nopool;
} over;
static __thread struct {
    cu_ctx v[32];
    int n, mode;
} stack;

static long setting_number(const char *name, const char *instead, long dflt)
{
    const char *s = instead ? instead : getenv(name);
    return s && *s ? atol(s) : dflt;
}

static void fake_read_settings(void)
{
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    int n = (int)setting_number("HVD_FAKE_GPUS", over.gpus, 1);

    fake.version = (int)setting_number("HVD_FAKE_CUDA", over.cuda, 12040);
    fake.is_mig = setting_number("HVD_FAKE_MIG", NULL, 0) != 0;
    fake.has_pools = !over.nopool;
    fake.sm = (int)setting_number("HVD_FAKE_SM", NULL, 90);
    fake.old = (int)setting_number("HVD_FAKE_OLD", NULL, -1);
    fake.delay_us = (unsigned)setting_number("HVD_FAKE_DELAY_US", NULL, 0);
    fake.jitter_us = (unsigned)setting_number("HVD_FAKE_JITTER_US", NULL, 0);
    fake.n_gpus = 0;
    for (int i = 0; !list && i < n && i < 16; i++)
        fake.visible[fake.n_gpus++] = i;
    while (list && *list && fake.n_gpus < 16) {
        char *end;
        long i = strtol(list, &end, 10);
        if (end == list || i < 0 || i >= n)
            break; /* the first bad one ends the list */
        fake.visible[fake.n_gpus++] = (int)i;
        list = *end == ',' ? end + 1 : end;
    }
}

void hvd_fake_setup(const char *cuda, const char *gpus, const char *nopool)
{
    LOCK_HERE(&fake.lock);
    over.cuda = cuda;
    over.gpus = gpus;
    over.nopool = nopool;
    fake.sticky = 0;
    fake_read_settings();
}

int fake_call(bool needs_ctx)
{
    char value[64];

    fake_n_calls++;
    if (!fake.is_init || fake.pid != getpid())
        return CU_NOT_INITIALIZED;
    if (hvd_fake_fault("deinit", value))
        return CU_DEINITIALIZED;
    if (needs_ctx && stack.n == 0)
        return CU_INVALID_CONTEXT;
    LOCK_HERE(&fake.lock);
    return needs_ctx ? fake.sticky : 0;
}

int fake_unsafe(void)
{
    LOCK_HERE(&fake.lock);
    if (fake.n_global_captures == 0 || stack.mode == CU_CAPTURE_RELAXED)
        return 0;
    for (int i = 0; i < 16; i++)
        for (cu_stream s = fake.ctx[i].streams; s; s = s->next)
            if (s->capture && s->capture_mode == CU_CAPTURE_GLOBAL)
                s->capture_status = CU_CAPTURE_BROKEN;
    return CU_CAPTURE_UNSUPPORTED;
}

cu_ctx fake_current(void)
{
    return stack.n > 0 ? stack.v[stack.n - 1] : NULL;
}

unsigned long hvd_fake_calls(void)
{
    return fake_n_calls;
}

unsigned hvd_fake_n_events(void)
{
    return fake.n_events;
}

unsigned hvd_fake_n_streams(void)
{
    return fake.n_streams;
}

unsigned long hvd_fake_n_syncs(void)
{
    return fake.n_syncs;
}

/* --- devices --- */

int cuInit(unsigned flags)
{
    char value[64];

    fake_n_calls++;
    if (hvd_fake_fault("init", value))
        return atoi(value);
    if (fake.is_init && fake.pid != getpid())
        return CU_NOT_INITIALIZED;
    LOCK_HERE(&fake.lock);
    if (!fake.is_init)
        fake_read_settings();
    fake.is_init = true;
    fake.pid = getpid();
    return flags != 0 ? CU_INVALID_VALUE : fake.n_gpus == 0 ? CU_NO_DEVICE : 0;
}

int cuDriverGetVersion(int *ret)
{
    fake_n_calls++;
    LOCK_HERE(&fake.lock);
    if (!fake.is_init)
        fake_read_settings();
    *ret = fake.version;
    return 0;
}

#define FAKE_ENTER_DEVICE(d)                                                           \
    do {                                                                               \
        int device_ = fake_check_device(d);                                            \
        if (device_)                                                                   \
            return device_;                                                            \
    } while (0)

static int fake_check_device(cu_device d)
{
    int rc = fake_call(false);
    return rc ? rc : d >= 0 && d < fake.n_gpus ? 0 : CU_INVALID_DEVICE;
}

int cuDeviceGetCount(int *ret)
{
    FAKE_ENTER(false);
    *ret = fake.n_gpus;
    return 0;
}

int cuDeviceGet(cu_device *ret, int ordinal)
{
    FAKE_ENTER_DEVICE(ordinal);
    *ret = ordinal;
    return 0;
}

int cuDeviceGetName(char *ret, int size, cu_device d)
{
    FAKE_ENTER_DEVICE(d);
    (void)snprintf(ret, (size_t)size, "NVIDIA Fake%s",
                   fake.is_mig ? " MIG 1g.10gb" : "");
    return 0;
}

int cuDeviceGetAttribute(int *ret, int attr, cu_device d)
{
    const int sm = d == fake.old ? 61 : fake.sm;

    FAKE_ENTER_DEVICE(d);
    if (attr == CU_ATTR_SM_MAJOR)
        *ret = sm / 10;
    else if (attr == CU_ATTR_SM_MINOR)
        *ret = sm % 10;
    else if (attr == CU_ATTR_MULTIPROCESSORS)
        *ret = 4;
    else if (attr == CU_ATTR_MEMORY_POOLS)
        *ret = fake.has_pools && fake.version >= 11020;
    else
        return CU_INVALID_VALUE;
    return 0;
}

static int fake_device_uuid(struct cu_uuid *ret, cu_device d, bool knows_mig)
{
    const char *host = getenv("HVD_FAKE_HOST");
    FAKE_ENTER_DEVICE(d);
    memset(ret, 0, sizeof(*ret));
    (void)snprintf((char *)ret->bytes, 14, "%s", host ? host : "host");
    ret->bytes[14] = (uint8_t)(fake.is_mig && knows_mig);
    ret->bytes[15] = (uint8_t)(fake.is_mig && !knows_mig ? 0 : fake.visible[d]);
    return 0;
}

int cuDeviceGetUuid(struct cu_uuid *ret, cu_device d)
{
    return fake_device_uuid(ret, d, false);
}

int cuDeviceGetUuid_v2(struct cu_uuid *ret, cu_device d)
{
    return fake_device_uuid(ret, d, true);
}

int cuDeviceTotalMem_v2(size_t *ret, cu_device d)
{
    FAKE_ENTER_DEVICE(d);
    *ret = (size_t)8 << 30;
    return 0;
}

int cuDeviceGetPCIBusId(char *ret, int size, cu_device d)
{
    FAKE_ENTER_DEVICE(d);
    (void)snprintf(ret, (size_t)size, "0000:%02x:00.0", 0x10 + fake.visible[d]);
    return 0;
}

/* --- contexts --- */

int cuDevicePrimaryCtxRetain(cu_ctx *ret, cu_device d)
{
    FAKE_ENTER_DEVICE(d);
    LOCK_HERE(&fake.lock);
    struct cu_ctx_s *c = &fake.ctx[d];
    if (c->n_retained++ == 0)
        c->device = d; /* other threads may read it from then on */
    if (!c->legacy)
        c->legacy = fake_stream_make(c, false, true);
    *ret = c;
    return 0;
}

int cuDevicePrimaryCtxRelease_v2(cu_device d)
{
    FAKE_ENTER_DEVICE(d);
    LOCK_HERE(&fake.lock);
    int rc = fake.ctx[d].n_retained > 0 ? 0 : CU_INVALID_CONTEXT;
    fake.ctx[d].n_retained -= rc == 0;
    return rc;
}

int cuCtxPushCurrent_v2(cu_ctx c)
{
    FAKE_ENTER(false);
    if (!c || stack.n == 32)
        return CU_INVALID_CONTEXT;
    stack.v[stack.n++] = c;
    return 0;
}

int cuCtxPopCurrent_v2(cu_ctx *ret)
{
    FAKE_ENTER(false);
    if (stack.n == 0)
        return CU_INVALID_CONTEXT;
    cu_ctx c = stack.v[--stack.n];
    if (ret)
        *ret = c;
    return 0;
}

EXPORT int cuCtxGetCurrent(cu_ctx *ret);
int cuCtxGetCurrent(cu_ctx *ret)
{
    *ret = fake_current();
    return fake_call(false);
}

/* What is about the whole context is about the streams that are being captured, too:
 * an error, and the end of these captures. With fake.lock. */
static int break_captures(cu_ctx c)
{
    int rc = 0;

    for (cu_stream s = c ? c->streams : NULL; s; s = s->next)
        if (s->capture) {
            s->capture_status = CU_CAPTURE_BROKEN;
            rc = CU_CAPTURE_UNSUPPORTED;
        }
    return rc;
}

int cuCtxSynchronize(void)
{
    FAKE_ENTER_SAFE();
    LOCK_HERE(&fake.lock);
    fake.n_syncs++;
    int rc = break_captures(fake_current());
    if (rc == 0)
        fake_wait_idle(fake_current());
    return rc ? rc : fake.sticky;
}

int cuCtxGetStreamPriorityRange(int *ret_least, int *ret_greatest)
{
    *ret_least = 0;
    *ret_greatest = -5;
    return fake_call(true);
}

int cuThreadExchangeStreamCaptureMode(int *mode)
{
    const int old = stack.mode;

    FAKE_ENTER(false);
    stack.mode = *mode;
    *mode = old;
    return 0;
}

/* --- streams --- */

int cuStreamCreateWithPriority(cu_stream *ret, unsigned flags, int priority)
{
    FAKE_ENTER(true);
    LOCK_HERE(&fake.lock);
    *ret = fake_stream_make(fake_current(), !(flags & CU_STREAM_NON_BLOCKING), false);
    fake.n_streams++;
    return 0;
}

int cuStreamDestroy_v2(cu_stream s)
{
    int rc = fake_call(true);

    if (rc && rc != fake.sticky)
        return rc;
    LOCK_HERE(&fake.lock);
    s = fake_stream(s);
    s->is_ending = true;
    fake.n_streams--;
    pthread_cond_signal(&s->moved);
    return rc;
}

int cuStreamQuery(cu_stream s)
{
    FAKE_ENTER_SAFE();
    LOCK_HERE(&fake.lock);
    s = fake_stream(s);
    if (s->capture)
        s->capture_status = CU_CAPTURE_BROKEN;
    return s->capture                ? CU_CAPTURE_UNSUPPORTED
           : s->n_done < s->n_queued ? CU_NOT_READY
                                     : fake.sticky;
}

int cuStreamIsCapturing(cu_stream s, int *ret)
{
    FAKE_ENTER(true);
    LOCK_HERE(&fake.lock);
    s = fake_stream(s);
    *ret = s->capture_status;
    return s->is_legacy && fake_captures_blocking(s->ctx) ? CU_CAPTURE_IMPLICIT : 0;
}

static bool is_reached(const struct cu_event_s *e)
{
    return !e->of || e->of->n_done >= e->number;
}

static void event_check(const char *call, const struct cu_event_s *e)
{
    if (e->magic != EVENT_LIVES)
        hvd_fake_die("%s: event %p does not live", call, (const void *)e);
}

int cuStreamWaitEvent(cu_stream s, cu_event e, unsigned flags)
{
    FAKE_ENTER(true);
    LOCK_HERE(&fake.lock);
    event_check("cuStreamWaitEvent", e);
    s = fake_stream(s);
    if (s->capture && !e->is_captured)
        return 905; /* isolation */
    s->n_waits++;
    if (s->capture || is_reached(e))
        return 0;
    struct entry *w = fake_entry(NULL, NULL, 0);
    w->wait_stream = e->of;
    w->number = e->number;
    return fake_push(s, w);
}

/* --- events --- */

int cuEventCreate(cu_event *ret, unsigned flags)
{
    FAKE_ENTER(true);
    cu_event e = fake_zalloc(sizeof(*e));
    e->magic = EVENT_LIVES;
    e->ctx = fake_current();
    fake.n_events++;
    *ret = e;
    return 0;
}

int cuEventRecord(cu_event e, cu_stream s)
{
    FAKE_ENTER(true);
    LOCK_HERE(&fake.lock);
    s = fake_stream(s);
    event_check("cuEventRecord", e);
    if (e->ctx != s->ctx)
        return CU_INVALID_HANDLE;
    e->is_captured = s->capture != NULL;
    if (s->capture)
        return 0;
    int rc = fake_push(s, fake_entry(NULL, NULL, 0));
    e->of = s;
    e->number = s->n_queued;
    return rc;
}

static int entry_do_nothing(void *arg)
{
    return 0;
}

int cuCtxRecordEvent(cu_ctx c, cu_event e)
{
    FAKE_ENTER(true);
    LOCK_HERE(&fake.lock);
    int rc = break_captures(c);
    if (rc)
        return rc;
    /* a stream of its own that waits for all */
    cu_stream all = fake_stream_make(c, false, false);
    for (cu_stream s = c->streams; s; s = s->next) {
        if (s == all || s->n_done >= s->n_queued)
            continue;
        struct entry *w = fake_entry(entry_do_nothing, NULL, 0);
        w->wait_stream = s;
        w->number = s->n_queued;
        (void)fake_push(all, w);
    }
    e->is_captured = false;
    e->of = all;
    e->number = all->n_queued;
    all->is_ending = true;
    pthread_cond_signal(&all->moved);
    return 0;
}

int cuEventQuery(cu_event e)
{
    FAKE_ENTER_SAFE();
    LOCK_HERE(&fake.lock);
    event_check("cuEventQuery", e);
    return e->is_captured   ? CU_CAPTURE_UNSUPPORTED
           : !is_reached(e) ? CU_NOT_READY
                            : fake.sticky;
}

int cuEventDestroy_v2(cu_event e)
{
    int rc = fake_call(true);

    if (rc && rc != fake.sticky)
        return rc;
    LOCK_HERE(&fake.lock);
    event_check("cuEventDestroy_v2", e);
    e->magic = EVENT_FREED;
    fake.n_events--;
    free(e);
    return rc;
}
