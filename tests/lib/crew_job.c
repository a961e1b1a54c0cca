/* SPDX-License-Identifier: Apache-2.0 */
/* See crew.h. */
#include "tests/lib/crew.h"

#include <string.h>

/* --- faults ----------------------------------------------------------------------- */

static void crew_lose_worker(struct crew *c, uint32_t worker)
{
    if (!c->is_up[worker])
        return;
    crew_send(c, (struct msg){.kind = M_LOST, .worker = worker});
    c->is_up[worker] = false;
    c->known[worker] = c->n_leaders[worker] = 0;
    c->back[worker] = c->now + 5 + crew_random(c, 30 * SECONDS);
    for (uint32_t i = worker * c->slots; i < (worker + 1) * c->slots; i++)
        c->procs[i].state = P_NONE;
}

static void crew_lose_leader(struct crew *c)
{
    if (!c->has_leader)
        return;
    c->has_leader = false;
    c->n_takeovers++;
    c->leader_back = c->now + 1 + crew_random(c, 10 * SECONDS);
    c->n_msgs = 0;
    elastic_release(&c->leader);
    memset(c->is_connected, 0, sizeof(c->is_connected));
}

/* It is in a world with another member that would see it hang. */
static bool proc_has_peer(const struct crew *c, uint32_t slot)
{
    const struct proc *p = &c->procs[slot];

    if (p->state != P_RUNNING && p->state != P_JOINING)
        return false;
    for (uint32_t i = 0; i < c->n_workers * c->slots; i++)
        if (i != slot && c->procs[i].world == p->world
            && (c->procs[i].state == P_RUNNING || c->procs[i].state == P_JOINING))
            return true;
    return false;
}

/* The user changes the bounds. */
static void crew_resize(struct crew *c)
{
    uint32_t n = c->n_workers * c->slots;
    struct err err = ERR_INIT;

    c->config.max_ranks = 1 + crew_random(c, n);
    c->config.min_ranks = c->config.start_ranks =
        1 + crew_random(c, c->config.max_ranks);
    if (c->has_leader)
        CREW_EXPECT(
            c,
            elastic_resize(&c->leader, c->config.min_ranks, c->config.max_ranks, &err)
                == 0,
            "%s", err.text);
}

/* All workers of the world will be gone soon. */
static void crew_drain_world(struct crew *c)
{
    for (uint32_t w = 0; w < c->n_workers; w++)
        for (uint32_t i = w * c->slots; i < (w + 1) * c->slots; i++)
            if (c->is_up[w] && c->procs[i].generation > 0
                && proc_is_in(&c->procs[i], c->n_worlds - 1))
                crew_offer(c, w, 0);
}

static void crew_fault(struct crew *c)
{
    uint32_t slot = crew_random(c, c->n_workers * c->slots),
             worker = crew_random(c, c->n_workers);
    struct proc *p = &c->procs[slot];

    c->n_faults++;
    switch (crew_random(c, 11)) {
    case 0:
        crew_lose_worker(c, worker);
        break;
    case 1:
        crew_lose_leader(c);
        break;
    case 2:
        if (proc_has_peer(c, slot)) {
            p->state = P_HUNG;
            p->hung_at = c->now;
        }
        break;
    case 3:
        if (c->is_up[worker] && c->n_offered[worker] > 0) /* 0: it will be gone soon */
            crew_offer(c, worker, crew_random(c, c->slots + 1));
        break;
    case 4:
        if (crew_random(c, 4) == 0)
            crew_resize(c);
        break;
    case 5:
        crew_drain_world(c);
        break;
    case 6:
        crew_cut_off(c);
        break;
    default:
        if (p->state != P_NONE && p->state != P_ENDING) /* another cause each time */
            proc_fail(c, slot, 1 + c->n_faults);
        break;
    }
}

/* Workers and leaders that were lost come back; drained workers go; others offer all slots
 * again. */
static void crew_mend(struct crew *c)
{
    struct err err = ERR_INIT;

    if (!c->has_leader && c->now >= c->leader_back) {
        CREW_EXPECT(c, elastic_init(&c->leader, &c->config, crew_ns(c), &err) == 0,
                    "%s", err.text);
        elastic_take_over(&c->leader, 0, crew_ns(c) + c->config.leave_ns);
        c->is_first_world = true;
        c->has_leader = true;
    }
    for (uint32_t w = 0; w < c->n_workers; w++) {
        if (!c->is_up[w] && c->now >= c->back[w]) {
            c->is_up[w] = true;
            c->n_offered[w] = 1 + crew_random(c, c->slots);
        }
        if (c->has_leader && c->is_up[w] && !c->is_connected[w]
            && crew_random(c, 10) == 0)
            crew_connect(c, w);
        if (!c->is_up[w] || c->n_offered[w] == c->slots
            || crew_random(c, 20 * SECONDS) > 0)
            continue;
        if (c->n_offered[w] == 0)
            crew_lose_worker(c, w);
        else
            crew_offer(c, w, c->slots);
    }
}

/* --- a job ------------------------------------------------------------------------ */

void crew_begin(struct crew *c, uint64_t seed, enum bug bug)
{
    uint32_t n;

    memset(c, 0, sizeof(*c));
    c->seed = seed;
    c->random = seed * 0x9e3779b97f4a7c15ull + 1;
    c->bug = bug;
    for (int i = 0; i < 8; i++)
        (void)crew_random(c, 2);
    c->n_workers = 1 + crew_random(c, W_MAX);
    c->slots = 1 + crew_random(c, S_MAX);
    n = c->n_workers * c->slots;
    c->config = (struct elastic_config){.n_workers = c->n_workers,
                                        .slots = c->slots,
                                        .reset_limit = ELASTIC_NO_LIMIT,
                                        .wait_ns = 600 * SECONDS * TICK_NS,
                                        .leave_ns = 30 * SECONDS * TICK_NS,
                                        .exclude_ns = 10 * SECONDS * TICK_NS,
                                        .exclude_max_ns = 60 * SECONDS * TICK_NS};
    c->config.max_ranks = 1 + crew_random(c, n);
    c->config.min_ranks = 1 + crew_random(c, c->config.max_ranks);
    c->config.start_ranks =
        c->config.min_ranks
        + crew_random(c, c->config.max_ranks - c->config.min_ranks + 1);
    c->config.n_spares = crew_random(c, 3);
    for (uint32_t i = 0; i < c->n_workers; i++) {
        c->is_up[i] = true;
        c->n_offered[i] = 1 + crew_random(c, c->slots);
    }
    /* the first leader adopts nothing */
    crew_mend(c);
    c->leader.is_adopting = false;
    c->leader.leave_ns = UINT64_MAX;
}

void crew_run(struct crew *c)
{
    uint32_t rarity = 5 + crew_random(c, 300);

    for (c->now = 0; c->now < END_S * SECONDS && !c->fault[0]; c->now++) {
        if (c->has_leader && c->leader.state == ELASTIC_ENDED)
            break;
        crew_deliver(c);
        for (uint32_t i = 0; i < c->n_workers * c->slots; i++)
            proc_step(c, i);
        if (c->now < FAULTS_S * SECONDS && crew_random(c, rarity) == 0)
            crew_fault(c);
        crew_mend(c);
        if (c->has_leader)
            crew_lead(c);
    }
    CREW_EXPECT(c, c->has_leader && c->leader.state == ELASTIC_ENDED,
                "the job has not ended: leader state %d, %u commits, %d worlds",
                c->has_leader ? (int)c->leader.state : -1, c->n_commits, c->n_worlds);
    CREW_EXPECT(c, c->leader.has_ended_well || c->n_totals >= 3, "the job failed: %s",
                c->leader.why);
}
