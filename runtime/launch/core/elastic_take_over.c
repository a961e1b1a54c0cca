/* SPDX-License-Identifier: Apache-2.0 */
/* What the workers of a job report to a leader that takes it over. elastic.c decides when
 * they have had their time. */
#include "runtime/launch/core/elastic.h"

void elastic_take_over(struct elastic *e, uint32_t term, uint64_t until_ns)
{
    e->term = term;
    e->is_adopting = true;
    e->leave_ns = until_ns;
}

void elastic_know_leaders(struct elastic *e, uint32_t n_leaders, uint32_t generation)
{
    uint32_t term = n_leaders;

    if (generation > 0 && generation >> ELASTIC_TERM_BITS >= term)
        term = (generation >> ELASTIC_TERM_BITS) + 1;
    if (e->is_adopting && term > e->term)
        e->term = term;
}

void elastic_end_take_over(struct elastic *e, uint64_t by_ns)
{
    if (e->is_adopting && by_ns < e->leave_ns)
        e->leave_ns = by_ns;
}

void elastic_take_over_again(struct elastic *e)
{
    if (e->state != ELASTIC_WAITING)
        return;
    e->generation = e->n_members = 0; /* as its members report it */
    e->is_break_due = e->has_notified = false;
    e->join_ns = 0;
    elastic_take_over(e, e->term, e->wait_ns);
}

static enum slot_state process_state(const struct elastic_process *p)
{
    if (p->is_done)
        return SLOT_DONE;
    if (p->is_member)
        return SLOT_MEMBER;
    if (p->is_waiting)
        return SLOT_READY;
    return p->generation > 0 ? SLOT_ENDING : SLOT_STARTING;
}

void elastic_adopt(struct elastic *e, uint32_t slot, const struct elastic_process *p)
{
    struct elastic_slot *s;

    if (slot >= e->n_slots || !e->is_adopting)
        return;
    elastic_know_leaders(e, 0, p->generation);
    s = &e->slots[slot];
    *s = (struct elastic_slot){.state = process_state(p),
                               .until_ns = e->leave_ns + e->config.leave_ns,
                               .is_drained = s->is_drained,
                               .incarnation = p->incarnation,
                               .generation = p->generation,
                               .since = p->since,
                               .has_committed = p->since > 0, /* as far as is known */
                               .rank = p->rank};
    if (p->generation > e->generation) {
        e->generation = p->generation;
        e->n_members = p->n_ranks;
    }
}
