/* SPDX-License-Identifier: Apache-2.0 */
/* The definitions are those of contract/places.h, except that ranks are in any order and
 * workers have gaps. */
#include "runtime/launch/core/elastic_places.h"

#include <errno.h>

#include "runtime/base/mem.h"
#include "runtime/launch/core/elastic_ranks.h"
#include "runtime/launch/core/elastic_slots.h"

/* The members on one worker; rank_at: [slots] of its slots. Returns how many. */
static uint32_t places_on_worker(const uint32_t *rank_at,
                                 uint32_t slots,
                                 uint32_t host,
                                 uint32_t *n_with,
                                 struct place *ret)
{
    uint32_t local_size = 0, free_rank = 0;

    for (uint32_t i = 0; i < slots; i++)
        local_size += rank_at[i] != RANK_NONE;
    for (uint32_t i = 0; i < slots; i++) {
        struct place *p;

        if (rank_at[i] == RANK_NONE)
            continue;
        p = &ret[rank_at[i]];
        p->host = host;
        p->local_size = local_size;
        p->local_rank = i;
        if (i >= local_size) {
            while (rank_at[free_rank] != RANK_NONE)
                free_rank++;
            p->local_rank = free_rank++;
        }
        p->cross_rank = n_with[p->local_rank]++;
    }
    return local_size;
}

int elastic_places(const uint32_t *members,
                   uint32_t n,
                   uint32_t slots,
                   struct place *ret,
                   struct err *err)
{
    uint32_t n_workers = 0, host = 0;

    for (uint32_t r = 0; r < n; r++)
        if (members[r] / slots >= n_workers)
            n_workers = members[r] / slots + 1;
    AUTOFREE uint32_t *rank_at =
        mem_calloc((size_t)n_workers * slots, sizeof(*rank_at));
    AUTOFREE uint32_t *n_with = mem_calloc(slots, sizeof(*n_with)); /* by local rank */
    if (!rank_at || !n_with)
        return err_set(err, -ENOMEM, "out of memory for the places of %u ranks", n);
    for (size_t i = 0; i < (size_t)n_workers * slots; i++)
        rank_at[i] = RANK_NONE;
    for (uint32_t r = 0; r < n; r++) {
        rank_at[members[r]] = r;
        ret[r] = (struct place){.rank = r, .size = n};
    }
    for (uint32_t w = 0; w < n_workers; w++)
        host +=
            places_on_worker(&rank_at[(size_t)w * slots], slots, host, n_with, ret) > 0;
    for (uint32_t r = 0; r < n; r++)
        ret[r].cross_size = n_with[ret[r].local_rank];
    return 0;
}

static bool slot_has_rank(const struct elastic_slot *s, uint32_t rank)
{
    return slot_is_live(s) && (s->since > 0 ? s->rank : s->expected) == rank;
}

uint32_t elastic_free_rank(const struct elastic *e)
{
    for (uint32_t rank = 0;; rank++) {
        uint32_t i = 0;

        while (i < e->n_slots && !slot_has_rank(&e->slots[i], rank))
            i++;
        if (i == e->n_slots)
            return rank;
    }
}

/* How many of the worker's slots can have a process. */
static uint32_t worker_count_usable(const struct elastic *e, uint32_t worker)
{
    const struct elastic_slot *v = elastic_worker_slots(e, worker);
    uint32_t n = 0;

    for (uint32_t i = 0; i < e->config.slots; i++)
        n += slot_is_live(&v[i]) || v[i].state == SLOT_IDLE;
    return n;
}

static uint32_t larger_of(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

void elastic_place_new(const struct elastic *e, uint32_t slot, struct place *ret)
{
    const uint32_t worker = slot / e->config.slots, least = elastic_need(e);
    struct place p = {.rank = e->slots[slot].expected,
                      .local_rank = slot % e->config.slots,
                      .host = worker};
    uint32_t n = 0;

    for (uint32_t w = 0; w < e->config.n_workers; w++) {
        const uint32_t usable = worker_count_usable(e, w);

        n += usable;
        p.cross_size += usable > 0;
        p.cross_rank += w < worker && usable > 0;
    }
    p.local_size = larger_of(worker_count_usable(e, worker), p.local_rank + 1);
    n = n < e->config.max_ranks ? n : e->config.max_ranks;
    p.local_size = p.local_size < n ? p.local_size : larger_of(n, p.local_rank + 1);
    p.size = larger_of(larger_of(n, least), larger_of(p.rank + 1, p.local_size));
    *ret = p;
}
