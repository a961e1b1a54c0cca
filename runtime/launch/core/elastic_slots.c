/* SPDX-License-Identifier: Apache-2.0 */
/* Called by elastic.c, and by the users of elastic_offer_slots. */
#include "runtime/launch/core/elastic_slots.h"

#define EXCLUDE_SHIFTS 20

bool slot_is_live(const struct elastic_slot *s)
{
    return s->state == SLOT_STARTING || s->state == SLOT_READY
           || s->state == SLOT_MEMBER || s->state == SLOT_ENDING;
}

void slot_empty(struct elastic_slot *s)
{
    s->state = s->is_drained ? SLOT_ABSENT : SLOT_IDLE;
    s->is_stopping = false;
    s->has_committed = false;
    s->until_ns = 0;
    s->generation = s->since = s->rank = 0;
}

void slot_exclude(struct elastic_slot *s,
                  const struct elastic_config *c,
                  uint64_t now_ns)
{
    uint32_t shift = s->n_excluded < EXCLUDE_SHIFTS ? s->n_excluded : EXCLUDE_SHIFTS;
    uint64_t ns = c->exclude_ns << shift;

    s->n_excluded++;
    s->n_failures = 0;
    s->state = SLOT_EXCLUDED;
    s->until_ns = now_ns + (ns < c->exclude_max_ns ? ns : c->exclude_max_ns);
}

struct elastic_slot *elastic_worker_slots(const struct elastic *e, uint32_t worker)
{
    return worker < e->config.n_workers ? &e->slots[worker * e->config.slots] : NULL;
}

static void slot_offer(struct elastic_slot *s)
{
    s->is_drained = false;
    if (s->state == SLOT_ABSENT) /* an exclusion that has ended is removed in time */
        s->state = s->until_ns > 0 ? SLOT_EXCLUDED : SLOT_IDLE;
}

static void slot_drain(struct elastic_slot *s)
{
    s->is_drained = true;
    if (s->state == SLOT_IDLE || s->state == SLOT_EXCLUDED)
        s->state = SLOT_ABSENT;
}

void elastic_offer_slots(struct elastic *e, uint32_t worker, uint32_t n)
{
    struct elastic_slot *v = elastic_worker_slots(e, worker);

    for (uint32_t i = 0; v && i < e->config.slots; i++)
        if (i < n)
            slot_offer(&v[i]);
        else
            slot_drain(&v[i]);
}

void elastic_expect_workers(struct elastic *e, uint32_t n)
{
    e->n_expected = n;
}

struct elastic_slot *
elastic_find(const struct elastic *e, uint32_t slot, uint32_t incarnation)
{
    struct elastic_slot *s = slot < e->n_slots ? &e->slots[slot] : NULL;

    return s && slot_is_live(s) && s->incarnation == incarnation ? s : NULL;
}

uint32_t elastic_count(const struct elastic *e, enum slot_state state)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < e->n_slots; i++)
        n += e->slots[i].state == state && !e->slots[i].is_stopping;
    return n;
}

uint32_t elastic_count_live(const struct elastic *e, enum slot_state last)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < e->n_slots; i++) {
        const struct elastic_slot *s = &e->slots[i];

        n += slot_is_live(s) && s->state <= last && !s->is_stopping && !s->is_drained;
    }
    return n;
}

bool elastic_has_member(const struct elastic *e)
{
    for (uint32_t i = 0; i < e->n_slots; i++)
        if (e->slots[i].state == SLOT_MEMBER)
            return true;
    return false;
}

bool elastic_is_useless(const struct elastic *e, uint32_t worker)
{
    const struct elastic_slot *v = elastic_worker_slots(e, worker);
    uint32_t n = 0;

    for (uint32_t i = 0; v && i < e->config.slots; i++) {
        if (v[i].state != SLOT_EXCLUDED && v[i].state != SLOT_ABSENT)
            return false;
        n += v[i].state == SLOT_EXCLUDED;
    }
    return n > 0;
}

void elastic_expire(struct elastic *e, uint64_t now_ns)
{
    for (uint32_t i = 0; i < e->n_slots; i++)
        if (e->slots[i].state == SLOT_EXCLUDED && now_ns >= e->slots[i].until_ns)
            e->slots[i].state = SLOT_IDLE;
}
