/* SPDX-License-Identifier: Apache-2.0 */
/* A handle is (serial << 20 | slot) + 1. The serial changes each time a slot is used
 * again, so that a released handle stays unknown for 2^43 reuses. Called by the api*.c
 * files. */
#include "runtime/api/handle.h"

#include <errno.h>

#include "runtime/base/mem.h"

enum { SLOT_BITS = 20 };
static const uint64_t SERIAL_MASK = (1ull << 42) - 1;

struct handle_slot {
    struct op *op; /* NULL: free */
    uint64_t serial;
    uint32_t next_free; /* index + 1 */
};

_Static_assert(HANDLES_MAX == 1u << SLOT_BITS, "a slot fits its bits");

int handles_add(struct handles *h, struct op *op, hvd_handle *ret)
{
    struct handle_slot *s;
    uint32_t i;
    int rc = 0;

    (void)pthread_mutex_lock(&h->lock);
    if (h->free_head == 0) {
        void *v = h->v;

        rc = mem_grow(&v, h->n, &h->cap, sizeof(*h->v), HANDLES_MAX);
        if (rc == 0) {
            h->v = v;
            h->v[h->n] = (struct handle_slot){0};
            h->free_head = (uint32_t)++h->n;
        }
    }
    if (rc == 0) {
        i = h->free_head - 1;
        s = &h->v[i];
        h->free_head = s->next_free;
        s->op = op_ref(op);
        s->serial = (s->serial + 1) & SERIAL_MASK;
        *ret = (hvd_handle)((s->serial << SLOT_BITS | i) + 1);
    }
    (void)pthread_mutex_unlock(&h->lock);
    return rc;
}

static struct handle_slot *handles_find(struct handles *h, hvd_handle handle)
{
    uint64_t v = (uint64_t)handle - 1;
    size_t i = v & (HANDLES_MAX - 1);

    if (handle <= 0 || i >= h->n || !h->v[i].op || h->v[i].serial != v >> SLOT_BITS)
        return NULL;
    return &h->v[i];
}

struct op *handles_get(struct handles *h, hvd_handle handle)
{
    struct handle_slot *s;
    struct op *op = NULL;

    (void)pthread_mutex_lock(&h->lock);
    s = handles_find(h, handle);
    if (s)
        op = op_ref(s->op);
    (void)pthread_mutex_unlock(&h->lock);
    return op;
}

int handles_remove(struct handles *h, hvd_handle handle)
{
    struct handle_slot *s;
    struct op *op = NULL;

    (void)pthread_mutex_lock(&h->lock);
    s = handles_find(h, handle);
    if (s) {
        op = TAKE(s->op);
        s->next_free = h->free_head;
        h->free_head = (uint32_t)(s - h->v) + 1;
    }
    (void)pthread_mutex_unlock(&h->lock);
    op_unref(op);
    return op ? 0 : -ENOENT;
}
