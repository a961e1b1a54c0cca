/* SPDX-License-Identifier: Apache-2.0 */
/* done.c: clones a libstdc++ std::function<void()> from C; see done.h for why and the
 * layout.
 *
 * C, not C++: the portable compiler brings libc++, whose std::function is another type,
 * and whose run-time library must not enter a process that has libstdc++. Called by
 * job.c and self_test.c.
 *
 * The one mutable global: addresses that are known to be code. dladdr() searches all
 * symbols of TensorFlow's libraries, half a millisecond per address, and an executor
 * has only a few. */
#include "runtime/tensorflow/done.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

enum { MANAGER_CLONE = 2, MANAGER_DESTROY = 3 };

struct done { /* std::function<void()> of libstdc++ on a 64-bit machine */
    void *storage[2];
    int (*manager)(void *to, const void *from, int operation);
    void (*invoker)(const void *storage);
};

static _Atomic uintptr_t seen[16];

/* Relaxed: only the address is published. Two threads may write one place; one wins. */
static bool is_code(uintptr_t address)
{
    size_t i;
    Dl_info info;

    for (i = 0; i < sizeof(seen) / sizeof(seen[0]); i++) {
        uintptr_t a = atomic_load_explicit(&seen[i], memory_order_relaxed);

        if (a == address)
            return true;
        if (a == 0)
            break;
    }
    if (!dladdr((const void *)address, &info))
        return false;
    if (i < sizeof(seen) / sizeof(seen[0]))
        atomic_store_explicit(&seen[i], address, memory_order_relaxed);
    return true;
}

bool done_is_clonable(const struct TF_AsyncOpKernelDoneCallback *callback)
{
    const struct done *d = (const void *)callback;

    return d->manager && d->invoker && is_code((uintptr_t)d->manager)
           && is_code((uintptr_t)d->invoker);
}

struct done *done_clone(const struct TF_AsyncOpKernelDoneCallback *callback)
{
    const struct done *from = (const void *)callback;
    struct done *d = calloc(1, sizeof(*d));

    if (!d)
        return NULL;
    from->manager(d, from, MANAGER_CLONE);
    d->manager = from->manager;
    d->invoker = from->invoker;
    return d;
}

void done_run(struct done *d)
{
    d->invoker(d);
    done_free(d);
}

void done_free(struct done *d)
{
    if (!d)
        return;
    d->manager(d, d, MANAGER_DESTROY);
    free(d);
}
