/* SPDX-License-Identifier: Apache-2.0 */
/* The definitions are those of contract/places.h, except that ranks are in any order and
 * workers have gaps. */
#include "runtime/launch/core/elastic_places.h"

#include <errno.h>

#include "runtime/base/mem.h"
#include "runtime/launch/core/elastic_ranks.h"

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
