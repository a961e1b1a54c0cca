/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration of the fake NCCL: version, delays, faults; and the driver below
 * it, which it opens by name, as NCCL does. Mutable global: the text of the last
 * error, under the lock. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/fakes/cuda/nccl_fake.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char last_error[512]; /* under lock */
static _Thread_local char said[512];
static struct fake_driver driver; /* written once */

/* What nccl_misfit() looks for in the file. */
__attribute__((used)) static const char banner[] = "NCCL version 2.27.5+cuda12.9";

void fake_die(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    (void)fprintf(stderr, "fake nccl: ");
    (void)vfprintf(stderr, fmt, ap);
    (void)fprintf(stderr, "\n");
    va_end(ap);
    abort();
}

void *fake_zalloc(size_t bytes)
{
    void *p = calloc(1, bytes);

    if (!p)
        fake_die("out of memory");
    return p;
}

static long setting_number(const char *name, long otherwise)
{
    const char *s = getenv(name);

    return s && *s ? strtol(s, NULL, 10) : otherwise;
}

int fake_version(void)
{
    return (int)setting_number("HVD_FAKE_NCCL", 22705);
}

uint64_t fake_delay_us(void)
{
    return (uint64_t)setting_number("HVD_FAKE_NCCL_DELAY_US", 200);
}

uint64_t fake_hang_s(void)
{
    return (uint64_t)setting_number("HVD_FAKE_HANG_S", 60);
}

uint64_t fake_now_us(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static bool find_fault(const char *name, char ret[64])
{
    const struct fake_driver *d = fake_driver();

    return d->fault && d->fault(name, ret);
}

int fake_fault(const char *name, int rank, uint64_t number)
{
    char v[64], *end;
    int code = 1;

    if (!find_fault(name, v) || strtol(v, &end, 10) != rank || end == v)
        return 0;
    if (*end == ':')
        code = (int)strtol(end + 1, &end, 10);
    return *end == '@' && strtoull(end + 1, NULL, 10) != number ? 0 : code;
}

bool fake_fault_is(const char *word)
{
    char v[64], want[64];
    const char *eq = strchr(word, '=');

    (void)snprintf(want, sizeof(want), "%.*s", (int)(eq - word), word);
    return find_fault(want, v) && strcmp(v, eq + 1) == 0;
}

/* --- the driver --- */

static void *driver_symbol(void *lib, const char *name)
{
    return lib ? dlsym(lib, name) : NULL;
}

static void load_driver(void)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

    *(void **)&driver.launch = driver_symbol(lib, "hvd_fake_enqueue");
    *(void **)&driver.is_capturing = driver_symbol(lib, "hvd_fake_is_capturing");
    *(void **)&driver.fault = driver_symbol(lib, "hvd_fake_fault");
    *(void **)&driver.need_device = driver_symbol(lib, "hvd_fake_need_device");
    *(void **)&driver.ctx_get = driver_symbol(lib, "cuCtxGetCurrent");
    *(void **)&driver.ctx_push = driver_symbol(lib, "cuCtxPushCurrent_v2");
    *(void **)&driver.ctx_pop = driver_symbol(lib, "cuCtxPopCurrent_v2");
    *(void **)&driver.mem_alloc = driver_symbol(lib, "cuMemAlloc_v2");
    *(void **)&driver.mem_free = driver_symbol(lib, "cuMemFree_v2");
}

static int
driver_is_missing(cu_stream s, int (*fn)(void *arg), const void *arg, size_t bytes)
{
    fake_die("there is no libcuda.so.1 that is a fake");
}

const struct fake_driver *fake_driver(void)
{
    static const struct fake_driver none = {.launch = driver_is_missing};
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, load_driver);
    return driver.launch ? &driver : &none;
}

/* --- errors as texts --- */

void fake_set_error(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    LOCK_HERE(&lock);
    (void)vsnprintf(last_error, sizeof(last_error), fmt, ap);
    va_end(ap);
}

const char *ncclGetLastError(nccl_comm c)
{
    LOCK_HERE(&lock);
    memcpy(said, last_error, sizeof(said));
    return said;
}

const char *ncclGetErrorString(int result)
{
    static const char *const texts[] = {
        "no error",
        "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        "unhandled system error (run with NCCL_DEBUG=INFO for details)",
        "internal error - please report this issue to the NCCL developers",
        "invalid argument (run with NCCL_DEBUG=WARN for details)",
        "invalid usage (run with NCCL_DEBUG=WARN for details)",
        "remote process exited or there was a network error",
        "NCCL operation in progress",
        "timeout",
    };
    const int last = fake_version() < 21400   ? NCCL_REMOTE
                     : fake_version() < 23000 ? NCCL_IN_PROGRESS
                                              : NCCL_TIMEOUT;

    return result >= 0 && result <= last ? texts[result] : "unknown result code";
}
