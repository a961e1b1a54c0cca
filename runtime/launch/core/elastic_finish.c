/* SPDX-License-Identifier: Apache-2.0 */
/* Members of a world end together. Programs without worlds do not: one may have ended
 * before the hosts of others are there. So as many are started as the job starts with.
 * Called by elastic.c. */
#include "runtime/launch/core/elastic_finish.h"

#include <stdio.h>

#include "runtime/launch/core/elastic_slots.h"

/* Slots that have had a process. */
static uint32_t finish_count_started(const struct elastic *e)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < e->n_slots; i++)
        n += e->slots[i].incarnation > 0;
    return n;
}

static bool finish_has_process(const struct elastic *e)
{
    for (uint32_t i = 0; i < e->n_slots; i++)
        if (slot_is_live(&e->slots[i]))
            return true;
    return false;
}

enum elastic_finish
elastic_finish(struct elastic *e, uint64_t now_ns, uint32_t *ret_slot)
{
    const uint32_t n = finish_count_started(e);
    const bool is_short =
        e->generation == 0 && e->why[0] == '\0' && n < e->config.start_ranks;

    for (uint32_t i = 0; is_short && i < e->n_slots; i++) {
        if (e->slots[i].state != SLOT_IDLE || e->slots[i].incarnation > 0)
            continue;
        *ret_slot = i;
        return FINISH_START;
    }
    if (finish_has_process(e) || (is_short && now_ns < e->wait_ns))
        return FINISH_WAIT;
    if (is_short)
        (void)snprintf(e->why, sizeof(e->why), "%u of %u processes were started", n,
                       e->config.start_ranks);
    return FINISH_END;
}
