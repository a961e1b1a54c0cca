/* SPDX-License-Identifier: Apache-2.0 */
/* See crew.h. */
#include "tests/lib/crew.h"

uint32_t crew_random(struct crew *c, uint32_t n)
{
    c->random ^= c->random << 13;
    c->random ^= c->random >> 7;
    c->random ^= c->random << 17;
    return (uint32_t)((c->random >> 16) % n);
}

uint64_t crew_ns(const struct crew *c)
{
    return (c->now + 1) * TICK_NS;
}

/* --- messages --------------------------------------------------------------------- */

void crew_send(struct crew *c, struct msg m)
{
    int way = m.kind == M_ACT || m.kind == M_FORM;
    uint32_t due = c->now + 1 + crew_random(c, 3);

    if (c->n_msgs == MSG_MAX || !c->has_leader || !c->is_connected[m.worker])
        return;
    if (due < c->last_due[way][m.worker])
        due = c->last_due[way][m.worker];
    c->last_due[way][m.worker] = due;
    m.due = due;
    m.epoch = c->epoch[m.worker];
    c->msgs[c->n_msgs++] = m;
}

uint32_t crew_worker(const struct crew *c, uint32_t slot)
{
    return slot / c->slots;
}

bool crew_offers(const struct crew *c, uint32_t slot)
{
    return slot % c->slots < c->n_offered[crew_worker(c, slot)];
}

static void
crew_report(struct crew *c, enum msg_kind kind, uint32_t slot, uint64_t cause)
{
    const struct proc *p = &c->procs[slot];

    crew_send(c, (struct msg){.kind = kind,
                              .worker = crew_worker(c, slot),
                              .slot = slot,
                              .incarnation = p->incarnation,
                              .generation = p->generation,
                              .cause = cause});
}

/* --- processes -------------------------------------------------------------------- */

void proc_wait(struct crew *c, uint32_t slot)
{
    struct proc *p = &c->procs[slot];

    p->state = P_WAITING;
    p->is_notified = false;
    p->at = 0;
    crew_report(c, M_READY, slot, 0);
}

void proc_end(struct crew *c, uint32_t slot, enum msg_kind kind, uint64_t cause)
{
    crew_report(c, kind, slot, cause);
    c->procs[slot].state = P_NONE;
}

void proc_fail(struct crew *c, uint32_t slot, uint64_t cause)
{
    struct proc *p = &c->procs[slot];

    if ((p->state != P_JOINING && p->state != P_RUNNING) || crew_random(c, 2) == 0) {
        proc_end(c, slot, M_FAILED, cause);
        return;
    }
    crew_report(c, M_ENDING, slot, 0);
    p->state = P_ENDING;
    p->cause = cause;
    p->at = c->now + crew_random(c, 60 * SECONDS);
}

bool proc_is_in(const struct proc *p, int world)
{
    return p->world == world
           && (p->state == P_JOINING || p->state == P_RUNNING || p->state == P_HUNG);
}

/* A member has gone, has left this world, or is silent for PEER_S. */
static bool world_is_broken(const struct crew *c, int world)
{
    const struct sim_world *w = &c->worlds[world];

    for (uint32_t r = 0; r < w->n; r++) {
        const struct proc *p = &c->procs[w->slot[r]];

        if (p->incarnation != w->incarnation[r] || p->state == P_NONE
            || (p->state == P_HUNG && c->now >= p->hung_at + PEER_S * SECONDS)
            || (p->generation >= w->generation && !proc_is_in(p, world)))
            return true;
    }
    return false;
}

static bool world_has_joined(const struct crew *c, int world, enum proc_state state)
{
    const struct sim_world *w = &c->worlds[world];

    for (uint32_t r = 0; r < w->n; r++) {
        const struct proc *p = &c->procs[w->slot[r]];

        if (p->incarnation != w->incarnation[r] || p->world != world
            || (p->state != state && p->state != P_RUNNING))
            return false;
    }
    return true;
}

/* The members save their state; then those that are notified leave, or the job is done. */
static void world_commit(struct crew *c, int world)
{
    struct sim_world *w = &c->worlds[world];
    bool leaves = c->procs[w->slot[0]].is_notified;

    w->n_commits++;
    c->n_commits++;
    crew_report(c, M_COMMIT, w->slot[0], 0);
    for (uint32_t r = 0; r < w->n; r++) {
        c->procs[w->slot[r]].n_commits++;
        c->procs[w->slot[r]].has_committed = true;
        if (c->n_commits >= COMMITS && c->now > FAULTS_S * SECONDS) {
            proc_end(c, w->slot[r], M_DONE, 0);
            c->is_finished = true;
        } else if (leaves) {
            proc_wait(c, w->slot[r]);
        }
    }
}

void proc_step(struct crew *c, uint32_t slot)
{
    struct proc *p = &c->procs[slot];

    if (p->state == P_STARTING && c->now >= p->at)
        proc_wait(c, slot);
    if (p->state == P_ENDING && c->now >= p->at)
        proc_end(c, slot, M_FAILED, p->cause);
    if (p->state != P_JOINING && p->state != P_RUNNING)
        return;
    if (world_is_broken(c, p->world)) { /* seen within a second */
        if (p->at == 0)
            p->at = c->now + 1 + crew_random(c, 9);
        if (c->now >= p->at)
            proc_wait(c, slot);
        return;
    }
    if (p->state == P_JOINING && world_has_joined(c, p->world, P_JOINING)) {
        p->state = P_RUNNING; /* with the state of rank 0 */
        p->n_commits = c->procs[c->worlds[p->world].slot[0]].n_commits;
    }
    if (p->state == P_RUNNING && p->rank == 0 && crew_random(c, 20) == 0
        && world_has_joined(c, p->world, P_RUNNING))
        world_commit(c, p->world);
}
