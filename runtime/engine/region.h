/* SPDX-License-Identifier: Apache-2.0 */
/* Registered buffers of one rank in one world: which GPU memory belongs to which region
 * of which process set. A region has the same number on all ranks of its set; its
 * address is each rank's own. Any thread reads, only the seat writes. */
#ifndef RUNTIME_ENGINE_REGION_H
#define RUNTIME_ENGINE_REGION_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct region {
    uint32_t set, number; /* from 1 */
    uintptr_t at;
    uint64_t bytes;
};
struct regions {
    pthread_mutex_t lock;    /* leaf lock */
    struct region *v;        /* lock */
    size_t n, cap;           /* lock */
    _Atomic uint32_t n_live; /* n, read without the lock */
};

void regions_init(struct regions *r);
void regions_release(struct regions *r); /* accepts a zeroed one */

/* --- any thread --- */

/* The number of the region of that set in which all of [p, p + bytes) lies; 0: none. */
uint32_t regions_find(struct regions *r, uint32_t set, const void *p, uint64_t bytes);
/* The number of a region that overlaps [p, p + bytes); 0: none. */
uint32_t
regions_find_overlap(struct regions *r, uint32_t set, const void *p, uint64_t bytes);
/* Address and size of a region; false: no such region. */
bool regions_get(struct regions *r, uint32_t set, uint32_t number, struct region *ret);

/* --- the seat --- */

/* The next number of that set after `last`, around the end, that is free; 0: none. */
uint32_t regions_next(struct regions *r, uint32_t set, uint32_t last);
int regions_reserve(struct regions *r);                          /* -ENOMEM */
void regions_add(struct regions *r, const struct region *added); /* one is reserved */
void regions_remove(struct regions *r, uint32_t set, uint32_t number);

#endif
