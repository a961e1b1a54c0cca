/* SPDX-License-Identifier: Apache-2.0 */
/* Called by elastic.c. */
#include "runtime/launch/core/elastic_loops.h"

#include "runtime/launch/core/elastic_ranks.h"
#include "runtime/launch/core/elastic_slots.h"

#define SHORT_NS  300000000000ull  /* a world that ended sooner made no progress */
#define REPEAT_NS 3600000000000ull /* failures further apart may be chance */

bool elastic_has_other(const struct elastic *e, uint64_t cause)
{
    for (uint32_t i = 0; i < e->n_slots; i++)
        if (slot_is_live(&e->slots[i]) && e->slots[i].state != SLOT_ENDING
            && e->slots[i].cause != cause)
            return true;
    return false;
}

bool elastic_count_cause(struct elastic *e,
                         struct elastic_slot *s,
                         uint64_t cause,
                         uint64_t now_ns)
{
    const bool is_same = s->cause == cause;
    const bool is_soon = now_ns < s->failed_ns + REPEAT_NS;

    s->cause = cause;
    s->failed_ns = now_ns;
    s->n_failures = is_same && is_soon ? s->n_failures + 1 : 1;
    s->n_loops = is_same ? s->n_loops + 1 : 1;
    if (!e->has_counted) {
        e->n_loops = e->cause == cause ? e->n_loops + 1 : 1;
        e->cause = e->world_cause = cause;
        e->has_counted = true;
    }
    return s->n_loops >= ELASTIC_LOOPS_MAX
           || (e->cause == cause && e->n_loops >= ELASTIC_LOOPS_MAX);
}

bool elastic_count_total_loss(struct elastic *e, uint32_t n, uint64_t now_ns)
{
    for (uint32_t i = 0; i < n; i++)
        if (e->candidates[i].since > 0)
            return false;
    if (e->generation == 0 || e->world_cause == 0)
        return false;
    if (now_ns >= e->formed_ns + SHORT_NS)
        e->n_totals = 0;
    e->n_totals = e->total_cause == e->world_cause ? e->n_totals + 1 : 1;
    e->total_cause = e->world_cause;
    return e->n_totals >= ELASTIC_LOOPS_MAX;
}

void elastic_forget_loops(struct elastic *e)
{
    e->cause = 0;
    for (uint32_t i = 0; i < e->n_slots; i++)
        e->slots[i].n_loops = 0;
}
