/* SPDX-License-Identifier: Apache-2.0 */
/* The table of registered buffers. There are few, so it is searched linearly. A program
 * that registers none reads one word.
 *
 * I1  Regions of one set do not overlap (the seat calls regions_find_overlap before it
 *     adds one).
 *
 * I2  The seat changes the table at the same positions of the common order on all
 *     ranks, so numbers are equal everywhere. A number is reused as late as possible:
 *     operations with the old meaning have ended by then.
 *
 * Called by api_device.c, carry_device.c and carry_register.c. */
#include "runtime/engine/region.h"

#include "runtime/base/mem.h"
#include "runtime/core/message.h"

void regions_init(struct regions *r)
{
    (void)pthread_mutex_init(&r->lock, NULL);
}

void regions_release(struct regions *r)
{
    mem_free(r->v);
    r->v = NULL;
    r->n = r->cap = 0;
}

static bool region_contains(const struct region *v, uintptr_t p, uint64_t bytes)
{
    return p >= v->at && p - v->at <= v->bytes && bytes <= v->bytes - (p - v->at);
}

static bool region_overlaps(const struct region *v, uintptr_t p, uint64_t bytes)
{
    return p < v->at + v->bytes && v->at < p + bytes;
}

static uint32_t
regions_search(struct regions *r,
               uint32_t set,
               const void *p,
               uint64_t bytes,
               bool (*fits)(const struct region *v, uintptr_t p, uint64_t bytes))
{
    uint32_t number = 0;

    if (atomic_load_explicit(&r->n_live, memory_order_acquire) == 0)
        return 0;
    (void)pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < r->n && number == 0; i++)
        if (r->v[i].set == set && fits(&r->v[i], (uintptr_t)p, bytes))
            number = r->v[i].number;
    (void)pthread_mutex_unlock(&r->lock);
    return number;
}

uint32_t regions_find(struct regions *r, uint32_t set, const void *p, uint64_t bytes)
{
    return regions_search(r, set, p, bytes, region_contains);
}

uint32_t
regions_find_overlap(struct regions *r, uint32_t set, const void *p, uint64_t bytes)
{
    return regions_search(r, set, p, bytes, region_overlaps);
}

bool regions_get(struct regions *r, uint32_t set, uint32_t number, struct region *ret)
{
    bool is_there = false;

    if (atomic_load_explicit(&r->n_live, memory_order_acquire) == 0)
        return false;
    (void)pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < r->n && !is_there; i++)
        if (r->v[i].set == set && r->v[i].number == number) {
            *ret = r->v[i];
            is_there = true;
        }
    (void)pthread_mutex_unlock(&r->lock);
    return is_there;
}

uint32_t regions_next(struct regions *r, uint32_t set, uint32_t last)
{
    struct region taken;

    for (uint32_t i = 0; i < REGION_MAX; i++) {
        uint32_t number = (last + i) % REGION_MAX + 1;

        if (!regions_get(r, set, number, &taken))
            return number;
    }
    return 0;
}

int regions_reserve(struct regions *r)
{
    int rc;

    (void)pthread_mutex_lock(&r->lock);
    rc = mem_grow((void **)&r->v, r->n, &r->cap, sizeof(*r->v), SIZE_MAX / 64);
    (void)pthread_mutex_unlock(&r->lock);
    return rc;
}

static void regions_update_count(struct regions *r)
{
    atomic_store_explicit(&r->n_live, (uint32_t)r->n, memory_order_release);
}

void regions_add(struct regions *r, const struct region *added)
{
    (void)pthread_mutex_lock(&r->lock);
    r->v[r->n++] = *added;
    regions_update_count(r);
    (void)pthread_mutex_unlock(&r->lock);
}

void regions_remove(struct regions *r, uint32_t set, uint32_t number)
{
    size_t left = 0;

    (void)pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < r->n; i++)
        if (r->v[i].set != set || r->v[i].number != number)
            r->v[left++] = r->v[i];
    r->n = left;
    regions_update_count(r);
    (void)pthread_mutex_unlock(&r->lock);
}
