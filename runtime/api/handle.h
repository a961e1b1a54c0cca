/* SPDX-License-Identifier: Apache-2.0 */
/* Handles: numbers of operations in the C API. They outlive the world: the status of an
 * operation that ended with its world can still be read. Any thread. */
#ifndef RUNTIME_API_HANDLE_H
#define RUNTIME_API_HANDLE_H

#include <pthread.h>

#include "runtime/engine/op.h"

#define HANDLES_MAX (1u << 20) /* unreleased at one time */

struct handles {          /* zeroed with HANDLES_INIT */
    pthread_mutex_t lock; /* leaf lock */
    struct handle_slot *v;
    size_t n, cap;
    uint32_t free_head; /* index + 1 of the first free slot, 0 if none */
};
#define HANDLES_INIT                                                                   \
    {                                                                                  \
        .lock = PTHREAD_MUTEX_INITIALIZER                                              \
    }

/* Takes a reference to op. 0, -ENOMEM, -E2BIG. */
int handles_add(struct handles *h, struct op *op, hvd_handle *ret);
struct op *handles_get(struct handles *h,
                       hvd_handle handle); /* a reference, or NULL: unknown */
int handles_remove(struct handles *h, hvd_handle handle); /* 0, -ENOENT */

#endif
