/* SPDX-License-Identifier: Apache-2.0 */
/* Called by elastic.c. */
#include "runtime/launch/core/elastic_ranks.h"

#include <stdlib.h>

static int candidate_compare(const void *pa, const void *pb)
{
    const struct elastic_candidate *a = pa, *b = pb;
    const uint32_t sa = a->since ? a->since : UINT32_MAX,
                   sb = b->since ? b->since : UINT32_MAX;

    if (sa != sb)
        return sa < sb ? -1 : 1;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return a->slot < b->slot ? -1 : a->slot > b->slot;
}

uint32_t
elastic_ranks(struct elastic_candidate *v, uint32_t n, uint32_t max, uint32_t *members)
{
    uint32_t free_rank = 0;

    qsort(v, n, sizeof(*v), candidate_compare);
    n = n < max ? n : max;
    for (uint32_t r = 0; r < n; r++)
        members[r] = RANK_NONE;
    if (n > 0 && v[0].since > 0)
        v[0].rank = 0;
    for (uint32_t i = 0; i < n; i++)
        if (v[i].rank < n && members[v[i].rank] == RANK_NONE)
            members[v[i].rank] = v[i].slot;
        else
            v[i].rank = RANK_NONE;
    for (uint32_t i = 0; i < n; i++) {
        if (v[i].rank != RANK_NONE)
            continue;
        while (members[free_rank] != RANK_NONE)
            free_rank++;
        members[free_rank] = v[i].slot;
    }
    return n;
}
