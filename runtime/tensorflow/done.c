/* SPDX-License-Identifier: Apache-2.0 */
/* done.c: clones a libstdc++ std::function<void()> from C; see done.h for why and the
 * layout.
 *
 * C, not C++: the portable compiler brings libc++, whose std::function is another type,
 * and whose run-time library must not enter a process that has libstdc++. Called by
 * hvd_tf.c only. */
#include "runtime/tensorflow/done.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

enum { MANAGER_CLONE = 2, MANAGER_DESTROY = 3 };

struct done { /* std::function<void()> of libstdc++ on a 64-bit machine */
    void *storage[2];
    int (*manager)(void *to, const void *from, int operation);
    void (*invoker)(const void *storage);
};

bool done_is_clonable(const struct TF_AsyncOpKernelDoneCallback *callback)
{
    const struct done *d = (const void *)callback;
    Dl_info manager, invoker;

    if (!d->manager || !d->invoker)
        return false;
    return dladdr((const void *)(uintptr_t)d->manager, &manager)
           && dladdr((const void *)(uintptr_t)d->invoker, &invoker);
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
