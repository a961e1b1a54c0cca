/* SPDX-License-Identifier: Apache-2.0 */
/* See crew.h. */
#include "tests/lib/crew.h"

#include <string.h>

/* --- the leader ------------------------------------------------------------------- */

/* Rank 0 gives its state to all, so it is the newest that there is. */
static void crew_check_state(struct crew *c, const struct sim_world *w)
{
    const struct proc *first = &c->procs[w->slot[0]];

    for (uint32_t r = 1; r < w->n; r++) {
        const struct proc *p = &c->procs[w->slot[r]];

        CREW_EXPECT(c,
                    p->incarnation != w->incarnation[r]
                        || p->n_commits <= first->n_commits
                        || first->incarnation != w->incarnation[0],
                    "rank 0 of world %u has %u commits, rank %u has %u", w->generation,
                    first->n_commits, r, p->n_commits);
    }
}

/* Rank 0 is to leave, but nobody else has the state, as far as the leader knows. */
static bool crew_is_given(const struct crew *c, const struct sim_world *w)
{
    const struct elastic_slot *slots = c->leader.slots;

    for (uint32_t r = 1; r < w->n; r++)
        if (slots[w->slot[r]].has_committed)
            return false;
    return slots[w->slot[0]].has_committed;
}

static void crew_check_form(struct crew *c, const struct sim_world *w)
{
    const struct sim_world *before =
        c->is_first_world ? NULL : &c->worlds[c->n_worlds - 1];
    const struct elastic *e = &c->leader;
    uint32_t least = c->n_worlds ? c->config.min_ranks : c->config.start_ranks,
             n_new = 0;

    CREW_EXPECT(c, w->n >= least && w->n <= c->config.max_ranks,
                "world %u has %u ranks, not %u to %u", w->generation, w->n, least,
                c->config.max_ranks);
    /* a world that no process has seen, or of which none is left, does not count */
    for (uint32_t i = 0; i < e->n_slots; i++)
        CREW_EXPECT(
            c, c->procs[i].state == P_NONE || c->procs[i].generation != w->generation,
            "two worlds of generation %u", w->generation);
    c->n_totals += c->n_worlds > 0 && w->since[0] == w->generation;
    for (uint32_t r = 0; r < w->n; r++) {
        CREW_EXPECT(c, w->since[0] <= w->since[r], "rank %u is older than rank 0", r);
        CREW_EXPECT(c, e->slots[w->slot[r]].rank == r, "slot %u has two ranks",
                    w->slot[r]);
        CREW_EXPECT(c, crew_offers(c, w->slot[r]) || (r == 0 && crew_is_given(c, w)),
                    "slot %u of world %u is drained", w->slot[r], w->generation);
        CREW_EXPECT(c, c->procs[w->slot[r]].state != P_ENDING,
                    "slot %u of world %u has failed", w->slot[r], w->generation);
        n_new += c->procs[w->slot[r]].generation == 0;
        for (uint32_t q = 0; before && q < before->n; q++)
            if (before->slot[q] == w->slot[r]
                && before->incarnation[q] == w->incarnation[r] && q < w->n && r != 0)
                CREW_EXPECT(c, q == r, "rank %u became rank %u of %u", q, r, w->n);
    }
    CREW_EXPECT(c, elastic_count_new(e) == n_new, "world %u has %u new ranks, not %u",
                w->generation, n_new, elastic_count_new(e));
}

static void crew_form(struct crew *c)
{
    const struct elastic *e = &c->leader;
    struct sim_world *w = &c->worlds[c->n_worlds];

    if (c->n_worlds == WORLD_MAX) {
        CREW_EXPECT(c, false, "too many worlds");
        return;
    }
    *w = (struct sim_world){.generation = e->generation, .n = e->n_members};
    for (uint32_t r = 0; r < w->n; r++) {
        w->slot[r] = e->members[r];
        w->incarnation[r] = e->slots[w->slot[r]].incarnation;
        w->since[r] = e->slots[w->slot[r]].since;
    }
    crew_check_form(c, w);
    crew_check_state(c, w);
    c->is_first_world = false;
    for (uint32_t r = 0; r < w->n; r++)
        crew_send(c, (struct msg){.kind = M_FORM,
                                  .worker = crew_worker(c, w->slot[r]),
                                  .slot = w->slot[r],
                                  .incarnation = w->incarnation[r],
                                  .generation = w->generation,
                                  .rank = r,
                                  .since = w->since[r],
                                  .world = c->n_worlds});
    c->n_worlds++;
}

static void crew_send_members(struct crew *c, enum elastic_act act)
{
    const struct elastic *e = &c->leader;

    for (uint32_t i = 0; i < e->n_slots; i++)
        if (e->slots[i].state == SLOT_MEMBER)
            crew_send(c, (struct msg){.kind = M_ACT,
                                      .act = act,
                                      .worker = crew_worker(c, i),
                                      .slot = i,
                                      .incarnation = e->slots[i].incarnation,
                                      .generation = e->slots[i].generation});
}

/* It waits and is not needed: there are enough without it, or it was left out. */
static bool crew_is_surplus(const struct crew *c, uint32_t slot)
{
    const struct proc *p = &c->procs[slot];
    const struct elastic *e = &c->leader;
    uint32_t n = 0; /* processes besides it */

    if (p->state != P_STARTING && p->state != P_WAITING)
        return false;
    for (uint32_t i = 0; i < e->n_slots; i++)
        n += e->slots[i].state >= SLOT_STARTING && e->slots[i].state <= SLOT_MEMBER
             && !e->slots[i].is_stopping && crew_offers(c, i);
    return n >= c->config.max_ranks + c->config.n_spares
           || (p->since > 0 && e->state == ELASTIC_RUNNING);
}

/* This process has the state of the job, as far as the leader knows. */
static bool crew_has_state(const struct crew *c, uint32_t slot)
{
    const struct elastic_slot *s = &c->leader.slots[slot];

    return (s->state == SLOT_READY || s->state == SLOT_MEMBER) && !s->is_stopping
           && s->incarnation == c->procs[slot].incarnation
           && c->procs[slot].has_committed;
}

static bool crew_any_has_state(const struct crew *c)
{
    for (uint32_t i = 0; i < c->leader.n_slots; i++)
        if (crew_has_state(c, i))
            return true;
    return false;
}

/* Another process could take over the state of this one, and no other one has it. A new
 * leader does not know which processes have it. */
static bool crew_is_last_with_state(const struct crew *c, uint32_t slot)
{
    const struct elastic *e = &c->leader;
    bool has_successor = false;

    if (!c->procs[slot].has_committed || c->procs[slot].state == P_HUNG
        || c->procs[slot].state == P_ENDING || c->n_takeovers > 0
        || c->config.max_ranks < 2 || e->has_handover_ended)
        return false;
    for (uint32_t i = 0; i < e->n_slots; i++) {
        if (i != slot && crew_has_state(c, i))
            return false;
        has_successor = has_successor
                        || (i != slot && crew_offers(c, i)
                            && (e->slots[i].state == SLOT_STARTING
                                || e->slots[i].state == SLOT_READY));
    }
    return has_successor;
}

/* A process that works is never stopped, nor is the last one that has the state. */
static void crew_check_stop(struct crew *c, const struct elastic_action *a)
{
    const struct proc *p = &c->procs[a->slot];

    CREW_EXPECT(
        c,
        p->incarnation != a->incarnation || p->state == P_NONE || p->state == P_HUNG
            || p->state == P_ENDING || !crew_offers(c, a->slot) || c->is_finished
            || !c->is_up[crew_worker(c, a->slot)] || crew_is_surplus(c, a->slot),
        "a process in slot %u (state %d) is stopped", a->slot, (int)p->state);
    CREW_EXPECT(c,
                p->incarnation != a->incarnation || p->state == P_NONE || c->is_finished
                    || !crew_is_last_with_state(c, a->slot),
                "the last process with the state, in slot %u, is stopped", a->slot);
}

static void crew_act(struct crew *c, const struct elastic_action *a)
{
    switch (a->act) {
    case ELASTIC_START:
    case ELASTIC_STOP:
        if (a->act == ELASTIC_STOP)
            crew_check_stop(c, a);
        else
            CREW_EXPECT(c, crew_offers(c, a->slot), "slot %u is not offered", a->slot);
        crew_send(c, (struct msg){.kind = M_ACT,
                                  .act = a->act,
                                  .worker = crew_worker(c, a->slot),
                                  .slot = a->slot,
                                  .incarnation = a->incarnation});
        break;
    case ELASTIC_FORM:
        crew_form(c);
        break;
    case ELASTIC_BREAK:
    case ELASTIC_NOTIFY:
        if (c->bug != BUG_NO_BREAK || a->act != ELASTIC_BREAK)
            crew_send_members(c, a->act);
        break;
    case ELASTIC_END:
        break;
    }
}

static void crew_plant(struct crew *c, struct elastic_action *a)
{
    struct elastic *e = &c->leader;
    uint32_t first, last;

    if (c->bug != BUG_NEW_FIRST || a->act != ELASTIC_FORM || e->n_members < 2)
        return;
    first = e->members[0];
    last = e->members[e->n_members - 1];
    e->members[0] = last;
    e->members[e->n_members - 1] = first;
    e->slots[last].rank = 0;
    e->slots[first].rank = e->n_members - 1;
}

/* The leader waits for events, while a world works: members in slots that are drained have
 * been notified, and processes that it left out are stopped. */
static void crew_check_rest(struct crew *c)
{
    const struct elastic *e = &c->leader;

    for (uint32_t i = 0; i < e->n_slots && e->state == ELASTIC_RUNNING; i++) {
        const struct elastic_slot *s = &e->slots[i];

        CREW_EXPECT(c,
                    s->state != SLOT_MEMBER || crew_offers(c, i) || e->has_notified
                        || e->handover_ns > 0 || e->is_adopting
                        || !c->is_connected[crew_worker(c, i)],
                    "slot %u is drained, and its world is not notified", i);
        CREW_EXPECT(c, s->state != SLOT_READY || s->since == 0 || s->is_stopping,
                    "slot %u was left out and is not stopped", i);
    }
}

/* All that are not connected come back. */
static void crew_expect_workers(struct crew *c)
{
    uint32_t n = 0;

    for (uint32_t w = 0; w < c->n_workers; w++)
        n += !c->is_connected[w];
    elastic_expect_workers(&c->leader, n);
}

void crew_lead(struct crew *c)
{
    struct elastic_action a;

    if (c->bug == BUG_FEW && c->leader.generation > 0)
        c->leader.config.min_ranks = 1;
    if (c->bug == BUG_NO_PATIENCE)
        c->leader.config.leave_ns = 1;
    for (uint32_t i = 0; c->bug == BUG_NO_HANDOVER && i < c->leader.n_slots; i++)
        c->leader.slots[i].has_committed = false;
    for (uint32_t i = 0; c->bug == BUG_NOT_ALL && i < c->leader.n_slots; i++)
        if (c->leader.state == ELASTIC_WAITING
            && c->leader.slots[i].state == SLOT_MEMBER)
            c->leader.slots[i].state = SLOT_READY;
    crew_expect_workers(c);
    for (int n = 0; elastic_next(&c->leader, crew_ns(c), &a); n++) {
        CREW_EXPECT(c, n < 1000, "the leader does not come to rest");
        if (n >= 1000)
            return;
        crew_plant(c, &a);
        crew_act(c, &a);
    }
    crew_check_rest(c);
}

void crew_offer(struct crew *c, uint32_t worker, uint32_t n)
{
    c->n_offered[worker] = n;
    if (c->has_leader && c->is_connected[worker])
        elastic_offer_slots(&c->leader, worker, c->bug == BUG_ALL_SLOTS ? c->slots : n);
    for (uint32_t i = worker * c->slots;
         c->bug == BUG_NO_NOTIFY && c->has_leader && i < (worker + 1) * c->slots; i++)
        if (c->leader.slots[i].state == SLOT_MEMBER)
            c->leader.slots[i].is_drained = false;
}

void crew_cut_off(struct crew *c)
{
    if (!c->has_leader)
        return;
    for (uint32_t w = 0; w < c->n_workers; w++) {
        if (!c->is_connected[w])
            continue;
        c->is_connected[w] = false;
        elastic_lose_worker(&c->leader, w, crew_ns(c));
        if (crew_random(c, 2) == 0)
            crew_lead(c);
    }
    c->n_msgs = 0;
    if (c->leader.generation == 0)
        return;
    c->n_takeovers++;
    c->is_first_world = true;
    if (c->bug != BUG_NO_RETURN)
        elastic_take_over_again(&c->leader);
}

/* What a worker has, for a new leader; or, too late, it has nothing. */
void crew_connect(struct crew *c, uint32_t worker)
{
    struct elastic *e = &c->leader;

    c->is_connected[worker] = true;
    c->epoch[worker]++;
    crew_offer(c, worker, c->n_offered[worker]);
    for (uint32_t i = worker * c->slots; i < (worker + 1) * c->slots; i++) {
        struct proc *p = &c->procs[i];

        if (p->state == P_NONE)
            continue;
        if (!e->is_adopting) {
            CREW_EXPECT(c,
                        !p->has_committed || p->state == P_ENDING || c->is_finished
                            || crew_any_has_state(c),
                        "the last processes with the state are not adopted");
            p->state = P_NONE;
            continue;
        }
        elastic_adopt(e, i,
                      &(struct elastic_process){.incarnation = p->incarnation,
                                                .is_member = proc_is_in(p, p->world),
                                                .is_waiting = p->state == P_WAITING,
                                                .generation = p->generation,
                                                .rank = p->rank,
                                                .n_ranks = p->n_ranks,
                                                .since = p->since});
    }
    elastic_know_leaders(e, c->n_leaders[worker], c->known[worker]);
    elastic_end_take_over(e, crew_ns(c) + 40 * SECONDS * TICK_NS);
    c->n_leaders[worker]++;
    if (c->bug == BUG_SAME_GENERATION)
        e->term = 0;
}

static void crew_take(struct crew *c, const struct msg *m)
{
    struct elastic *e = &c->leader;
    switch (m->kind) {
    case M_READY:
        elastic_take_ready(e, m->slot, m->incarnation, m->generation, crew_ns(c));
        break;
    case M_FAILED:
        elastic_take_failure(e, m->slot, m->incarnation, m->cause, crew_ns(c));
        break;
    case M_ENDING:
        if (c->bug == BUG_READY_AT_THE_END)
            elastic_take_ready(e, m->slot, m->incarnation, m->generation, crew_ns(c));
        else
            elastic_take_ending(e, m->slot, m->incarnation, m->generation, crew_ns(c));
        break;
    case M_DONE:
        elastic_take_done(e, m->slot, m->incarnation, crew_ns(c));
        break;
    case M_COMMIT:
        elastic_take_commit(e, m->generation);
        break;
    case M_LOST:
    case M_ACT:
    case M_FORM:
        break;
    }
}

/* A worker takes what the leader has sent. */
static void crew_obey(struct crew *c, const struct msg *m)
{
    struct proc *p = &c->procs[m->slot];
    bool is_there = p->state != P_NONE && p->incarnation == m->incarnation;

    if (m->kind == M_FORM)
        c->known[m->worker] = m->generation;
    if (m->kind == M_ACT && m->act == ELASTIC_START) {
        CREW_EXPECT(c, p->state == P_NONE, "a second process in slot %u", m->slot);
        *p = (struct proc){.state = P_STARTING,
                           .incarnation = m->incarnation,
                           .world = -1,
                           .at = c->now + 5 + crew_random(c, 10 * SECONDS)};
    } else if (!is_there) {
        return;
    } else if (m->kind == M_FORM) {
        CREW_EXPECT(c, p->state == P_WAITING || p->state == P_HUNG,
                    "a process in state %d is in world %u", (int)p->state,
                    m->generation);
        if (p->state == P_WAITING)
            p->state = P_JOINING;
        p->generation = m->generation;
        p->rank = m->rank;
        p->since = m->since;
        p->world = m->world;
        p->n_ranks = c->worlds[m->world].n;
        p->at = 0;
    } else if (m->act == ELASTIC_STOP) {
        proc_end(c, m->slot, M_FAILED, 0);
    } else if (p->state != P_HUNG && p->state != P_ENDING
               && p->generation == m->generation && p->state != P_WAITING) {
        if (m->act == ELASTIC_BREAK)
            proc_wait(c, m->slot);
        else
            p->is_notified = true;
    }
}

void crew_deliver(struct crew *c)
{
    for (size_t i = 0; i < c->n_msgs;) {
        struct msg m = c->msgs[i];

        if (m.due > c->now) {
            i++;
            continue;
        }
        memmove(&c->msgs[i], &c->msgs[i + 1], (--c->n_msgs - i) * sizeof(m));
        if (m.epoch != c->epoch[m.worker])
            continue;
        if (m.kind == M_LOST) {
            c->is_connected[m.worker] = false;
            if (c->bug != BUG_LOST_UNSEEN)
                elastic_lose_worker(&c->leader, m.worker, crew_ns(c));
        } else if (m.kind == M_ACT || m.kind == M_FORM) {
            if (c->is_up[m.worker])
                crew_obey(c, &m);
        } else {
            crew_take(c, &m);
        }
    }
}
