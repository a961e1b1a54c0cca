/* SPDX-License-Identifier: Apache-2.0 */
/*   all that have the state are drained -> their world stays until another process is ready
 *   NOTIFY -> they leave at a commit; the oldest is in the next world, as rank 0
 *   that world commits -> another process has the state too, and the oldest is stopped
 *
 * Without a process that could be ready soon they leave at once. Called by elastic.c. */
#include "runtime/launch/core/elastic_handover.h"

#include "runtime/launch/core/elastic_slots.h"

#define HANDOVER_MAX_NS 60000000000ull

static bool slot_has_state(const struct elastic_slot *s)
{
    return s->has_committed && !s->is_stopping
           && (s->state == SLOT_READY || s->state == SLOT_MEMBER);
}

/* Its process can be in the next world, or in one soon. */
static bool slot_can_succeed(const struct elastic_slot *s)
{
    return !s->is_drained && !s->is_stopping
           && (s->state == SLOT_IDLE || s->state == SLOT_STARTING
               || s->state == SLOT_READY || s->state == SLOT_MEMBER);
}

static bool handover_is_needed(const struct elastic *e)
{
    bool has_leaver = false, has_successor = e->n_expected > 0;

    for (uint32_t i = 0; i < e->n_slots; i++) {
        const struct elastic_slot *s = &e->slots[i];

        if (slot_has_state(s) && !s->is_drained)
            return false;
        has_leaver = has_leaver || slot_has_state(s);
        has_successor = has_successor || slot_can_succeed(s);
    }
    return has_leaver && has_successor && e->config.max_ranks > 1;
}

void elastic_serve_handover(struct elastic *e, uint64_t now_ns)
{
    if (!handover_is_needed(e)) {
        elastic_restart_handover(e);
    } else if (e->handover_ns == 0 && !e->has_handover_ended) {
        e->handover_ns = now_ns + HANDOVER_MAX_NS;
    } else if (e->handover_ns > 0 && now_ns >= e->handover_ns) {
        e->handover_ns = 0;
        e->has_handover_ended = true;
    }
}

void elastic_restart_handover(struct elastic *e)
{
    e->handover_ns = 0;
    e->has_handover_ended = false;
}

bool elastic_waits_for_successor(const struct elastic *e)
{
    if (e->handover_ns == 0)
        return false;
    for (uint32_t i = 0; i < e->n_slots; i++) {
        const struct elastic_slot *s = &e->slots[i];

        if (!s->is_drained && !s->is_stopping
            && (s->state == SLOT_READY || s->state == SLOT_MEMBER))
            return false;
    }
    return true;
}

static bool slot_is_older(const struct elastic_slot *a, const struct elastic_slot *b)
{
    return a->since < b->since || (a->since == b->since && a->rank < b->rank);
}

bool elastic_keeps(const struct elastic *e, const struct elastic_slot *s)
{
    if (e->handover_ns == 0 || e->state != ELASTIC_WAITING || s->state != SLOT_READY
        || !slot_has_state(s))
        return false;
    for (uint32_t i = 0; i < e->n_slots; i++)
        if (e->slots[i].state == SLOT_READY && slot_has_state(&e->slots[i])
            && slot_is_older(&e->slots[i], s))
            return false;
    return true;
}
