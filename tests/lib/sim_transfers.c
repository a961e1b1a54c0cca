/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/sim_transfers.h"

#include "tests/lib/sim_check.h"

bool sim_is_transfer(const struct member_act *act)
{
    return act->kind == MEMBER_RUN && act->items[0].req->coll == COLL_SENDRECV;
}

/* The rank begins a batch of transfers. */
void sim_begin_transfer(struct sim *s, uint32_t rank, const struct member_act *act)
{
    struct sim_rank *r = &s->ranks[rank];
    struct sim_transfer *t = &r->transfers[r->n_transfers];

    if (r->n_transfers == SIM_TRANSFERS || act->n_items > SIM_STEP_OPS) {
        sim_wrong(s, "rank %u has too many transfers", rank);
        return;
    }
    sim_begin_run(s, rank, act);
    r->is_running = false; /* it does not keep the rank from other transfers */
    r->n_transfers++;
    t->set = r->run_set;
    t->batch = r->n_batches[r->run_set] - 1;
    t->n = (uint32_t)act->n_items;
    for (uint32_t i = 0; i < t->n; i++)
        t->ops[i] = (struct sim_op *)(void *)act->items[i].op;
}

static bool transfer_may_end(const struct sim *s, uint32_t rank, uint32_t at)
{
    const struct sim_rank *r = &s->ranks[rank];
    const struct sim_transfer *t = &r->transfers[at];
    const struct sim_batch *b = &s->batches[t->set].v[t->batch];

    for (uint32_t i = 0; i < at; i++)
        if (r->transfers[i].set == t->set)
            return false;
    return b->entered == b->members;
}

/* Ends any of them that may end. False: there is none. */
bool sim_end_transfer(struct sim *s, uint32_t rank)
{
    struct sim_rank *r = &s->ranks[rank];
    uint32_t from = seeded_below(&s->rng, r->n_transfers + !r->n_transfers);

    for (uint32_t k = 0; k < r->n_transfers; k++) {
        uint32_t at = (from + k) % r->n_transfers;

        if (!transfer_may_end(s, rank, at))
            continue;
        for (uint32_t i = 0; i < r->transfers[at].n; i++)
            sim_end_op(s, rank, r->transfers[at].ops[i]);
        r->n_transfers--;
        for (uint32_t i = at; i < r->n_transfers; i++)
            r->transfers[i] = r->transfers[i + 1];
        return true;
    }
    return false;
}

/* The rank has transfers: the act is carried out after them. */
void sim_hold_act(struct sim *s, uint32_t rank, const struct member_act *act)
{
    struct sim_rank *r = &s->ranks[rank];

    r->is_holding = true;
    r->held = *act;
    r->held_hash = sim_hash_act(act);
}

/* All transfers have ended. */
struct member_act sim_release_act(struct sim *s, uint32_t rank)
{
    struct sim_rank *r = &s->ranks[rank];

    r->is_holding = false;
    if (sim_hash_act(&r->held) != r->held_hash)
        sim_wrong(s, "the act of rank %u changed while it had transfers", rank);
    return r->held;
}
