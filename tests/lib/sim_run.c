/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a simulated world (sim.h): which event comes next, and when it is over. */
#include "tests/lib/sim_run.h"

#include "runtime/core/cycle.h"
#include "tests/lib/sim_check.h"
#include "tests/lib/sim_transfers.h"

enum sim_event {
    EV_USER,  /* a rank's thread continues its script */
    EV_FLUSH, /* sends to rank 0 */
    EV_RECV,  /* receives an answer */
    EV_NEXT,  /* runs the next act */
    EV_UP,    /* rank 0 receives a message of this rank */
    EV_WRITE, /* rank 0 answers */
    EV_COUNT
};

/* --- rank 0 --- */

/* For last_join: a join that is among these has arrived now. */
static void note_join(struct sim *s, uint32_t rank, const void *p, size_t n)
{
    struct message_reader in;
    struct up u;

    if (!s->ranks[rank].is_joined || message_open(&in, p, n, NULL) < 0)
        return;
    while (message_next_up(&in, &u, NULL) > 0)
        if (u.kind == UP_REQUEST && u.req.coll == COLL_JOIN)
            s->last_join = rank;
}

static void take_in(struct sim *s, uint32_t rank, const void *p, size_t n)
{
    struct message_reader in;
    int r = message_open(&in, p, n, &s->err);

    note_join(s, rank, p, n);
    if (r == 0)
        r = negotiate_receive(s->n, rank, &in, s->now, &s->err);
    sim_error(s, r);
}

static bool on_up(struct sim *s, uint32_t rank)
{
    struct sim_msg *m = sim_link_pop(&s->ranks[rank].up);

    if (!m)
        return false;
    take_in(s, rank, m->bytes, m->n);
    free(m);
    return true;
}

static bool on_write(struct sim *s, uint32_t rank)
{
    if (rank != 0)
        return false;
    if (s->leave_in && seeded_below(&s->rng, s->leave_in) == 0)
        negotiate_report_late(s->n); /* the stall report's wish */
    if (s->tune_in && s->n_reported < SIM_TUNINGS
        && seeded_below(&s->rng, s->tune_in) == 0) {
        struct tuning t = {.fusion_bytes = seeded_below(&s->rng, 400)};

        s->n_reported++;
        negotiate_tune(s->n, &t);
    }
    if (!negotiate_has_news(s->n))
        return false;
    strbuf_clear(&s->out);
    sim_error(s, negotiate_write(s->n, &s->out));
    if (s->rc < 0)
        return true;
    for (uint32_t r = 1; r < s->cfg.n_ranks; r++)
        sim_link_push(&s->ranks[r].down, s->out.p, s->out.n);
    sim_error(s, member_receive(s->ranks[0].m, s->out.p, s->out.n, &s->err));
    return true;
}

/* --- every rank --- */

static bool on_flush(struct sim *s, uint32_t rank)
{
    struct sim_rank *r = &s->ranks[rank];

    if (!member_take_up(r->m, &s->out))
        return false;
    sim_error(s, strbuf_status(&s->out));
    if (s->rc < 0)
        return true;
    sim_trace(s, "%llu rank %u sends %zu bytes\n", (unsigned long long)s->now, rank,
              s->out.n);
    if (rank == 0)
        take_in(s, 0, s->out.p, s->out.n);
    else
        sim_link_push(&r->up, s->out.p, s->out.n);
    return true;
}

static bool on_recv(struct sim *s, uint32_t rank)
{
    struct sim_rank *r = &s->ranks[rank];
    struct sim_msg *m = sim_link_pop(&r->down);

    if (!m)
        return false;
    sim_error(s, member_receive(r->m, m->bytes, m->n, &s->err));
    free(m);
    return true;
}

static bool sim_do_act(struct sim *s, uint32_t rank, const struct member_act *act)
{
    switch (act->kind) {
    case MEMBER_NOTHING:
    case MEMBER_PROBE: /* no rank submits one */
        return false;
    case MEMBER_RUN:
        sim_begin_run(s, rank, act);
        break;
    case MEMBER_FAIL:
        sim_take_failure(s, rank, act);
        break;
    case MEMBER_JOIN:
        sim_take_join(s, rank, act);
        break;
    case MEMBER_TUNE:
        sim_take_tuning(s, rank, act->tuning);
        break;
    case MEMBER_AGREE:
        sim_begin_agreement(s, rank, act);
        break;
    case MEMBER_PAIR:
        sim_begin_pair(s, rank, act);
        break;
    case MEMBER_SET:
        sim_begin_set(s, rank, act);
        break;
    }
    return true;
}

/* Transfers end, or others begin; all else waits for them. */
static bool
sim_do_act_or_hold(struct sim *s, uint32_t rank, const struct member_act *act)
{
    struct sim_rank *r = &s->ranks[rank];

    if (sim_is_transfer(act))
        sim_begin_transfer(s, rank, act);
    else if (act->kind == MEMBER_NOTHING)
        return sim_end_transfer(s, rank);
    else if (r->n_transfers > 0)
        sim_hold_act(s, rank, act);
    else
        return sim_do_act(s, rank, act);
    return true;
}

static bool on_next(struct sim *s, uint32_t rank)
{
    struct sim_rank *r = &s->ranks[rank];
    bool may_offer = s->is_last || seeded_below(&s->rng, 4) > 0;
    struct member_act act;
    int rc;

    if (r->is_running)
        return sim_end_run(s, rank);
    if (r->n_transfers > 0 && (r->is_holding || seeded_below(&s->rng, 2) == 0)) {
        bool has_ended = sim_end_transfer(s, rank);

        if (has_ended || r->is_holding)
            return has_ended;
    }
    if (r->is_holding) {
        act = sim_release_act(s, rank);
        return sim_do_act(s, rank, &act);
    }
    if (member_is_agreeing(r->m))
        return sim_end_agreement(s, rank);
    if (s->leave_in && seeded_below(&s->rng, s->leave_in) == 0)
        member_leave_plan(r->m);
    rc = member_next(r->m, may_offer, &act, &s->err);
    sim_error(s, rc);
    return rc < 0 || sim_do_act_or_hold(s, rank, &act);
}

/* --- scripts --- */

static uint64_t n_messages(const struct sim *s)
{
    uint64_t n = negotiate_counts(s->n).n_messages;

    for (uint32_t r = 0; r < s->cfg.n_ranks; r++)
        n += member_counts(s->ranks[r].m).n_up;
    return n;
}

static bool all_have_reached(const struct sim *s, uint32_t step)
{
    for (uint32_t r = 0; r < s->cfg.n_ranks; r++)
        if (s->ranks[r].step < step)
            return false;
    return true;
}

/* Rank has come to its next step. */
static void look_at_phases(struct sim *s, uint32_t rank)
{
    uint32_t step = s->ranks[rank].step;

    for (uint32_t i = 0; i < s->n_phases; i++) {
        struct sim_phase *p = &s->phases[i];

        if (!p->has_base && !p->is_checked && all_have_reached(s, p->from)) {
            p->base = n_messages(s);
            p->has_base = true;
            /* after plans that did not last, the next one takes longer */
            p->is_skipped = negotiate_counts(s->n).n_needs > CYCLE_SAME_STEPS;
        }
        if (step != p->to || p->is_checked)
            continue;
        p->is_checked = true;
        if (!p->has_base || p->is_skipped)
            continue;
        s->n_quiet_steps += p->to - p->from;
        if ((n_messages(s) - p->base) * 100 > p->to - p->from)
            sim_wrong(s, "%llu messages in the steady steps %u to %u",
                      (unsigned long long)(n_messages(s) - p->base), p->from, p->to);
    }
}

static void step_on(struct sim *s, uint32_t rank)
{
    struct sim_rank *r = &s->ranks[rank];

    r->step++;
    r->at = 0;
    r->has_begun = false;
    look_at_phases(s, rank);
}

static bool step_begin(struct sim *s, uint32_t rank)
{
    struct sim_rank *r = &s->ranks[rank];
    const struct sim_step *step = &s->steps[r->step];

    if (r->n_open > 0 && (step->waits || r->is_joined))
        return false;
    for (uint32_t i = 0; i + s->depth < r->step && r->n_open > 0 && !step->hurries; i++)
        if (r->open_of[i] > 0)
            return false;
    for (uint32_t i = 0; i < step->n; i++)
        r->order[i] = (uint8_t)i;
    for (uint32_t i = step->n; i > 1; i--) {
        uint32_t j = seeded_below(&s->rng, i);
        uint8_t v = r->order[i - 1];

        r->order[i - 1] = r->order[j];
        r->order[j] = v;
    }
    if (seeded_below(&s->rng, 16) == 0)
        r->pause = seeded_below(&s->rng, 100);
    r->has_begun = true;
    return true;
}

static bool on_user(struct sim *s, uint32_t rank)
{
    struct sim_rank *r = &s->ranks[rank];

    if (r->step >= s->n_steps)
        return false;
    if (r->pause > 0) {
        r->pause = s->is_last ? 0 : r->pause - 1;
        return s->is_last;
    }
    if (!(s->steps[r->step].active >> rank & 1)) {
        step_on(s, rank);
        return true;
    }
    if (!r->has_begun)
        return step_begin(s, rank);
    while (r->at < s->steps[r->step].n) {
        const struct sim_spec *p = &s->steps[r->step].v[r->order[r->at]];

        if (p->coll == COLL_SET_REMOVE && !(s->sets[p->makes].in >> rank & 1))
            return false; /* this rank does not have its number yet */
        r->at++;
        if (sim_spec_mask(s, p) >> rank & 1) {
            sim_submit(s, rank, p);
            return true;
        }
    }
    step_on(s, rank);
    return true;
}

/* --- which event comes next --- */

static bool sim_event(struct sim *s, uint32_t rank, enum sim_event ev, bool is_last)
{
    static bool (*const on[EV_COUNT])(struct sim *, uint32_t) = {
        [EV_USER] = on_user, [EV_FLUSH] = on_flush, [EV_RECV] = on_recv,
        [EV_NEXT] = on_next, [EV_UP] = on_up,       [EV_WRITE] = on_write};
    struct sim_rank *r = &s->ranks[rank];
    bool moved;

    if (r->is_dead || (s->ranks[0].is_dead && (ev == EV_UP || ev == EV_WRITE)))
        return false;
    s->is_last = is_last;
    moved = on[ev](s, rank);
    r->n_events += moved;
    if (rank == s->kill_rank && r->n_events >= s->kill_at)
        r->is_dead = true;
    s->now++;
    return moved;
}

/* Every seed has its own slow ranks, fast links, lazy threads. */
static void make_picks(struct sim *s)
{
    static const uint32_t lazy[EV_COUNT] = {4, 8, 1, 1, 32, 32};
    uint32_t n = s->cfg.n_ranks * EV_COUNT, spread = 1 + seeded_below(&s->rng, 6);
    uint32_t weight[SIM_RANKS * EV_COUNT] = {0}, sum = 0;

    for (uint32_t i = 0; i < n; i++) {
        bool is_none = i % EV_COUNT == EV_WRITE && i / EV_COUNT != 0;

        weight[i] = is_none ? 0 : 1u << seeded_below(&s->rng, spread);
        if (s->is_lazy)
            weight[i] *= lazy[i % EV_COUNT];
        sum += weight[i];
    }
    for (uint32_t i = 0; i < SIM_PICKS; i++) { /* in proportion to the weights */
        uint32_t x = seeded_below(&s->rng, sum + !sum), at = 0;

        while (at + 1 < n && x >= weight[at])
            x -= weight[at++];
        s->picks[i] = (uint16_t)at;
    }
}

/* Any event that is possible. False: there is none. */
static bool sim_any(struct sim *s)
{
    uint32_t n = s->cfg.n_ranks * EV_COUNT, from = seeded_below(&s->rng, n);

    for (uint32_t i = 0; i < n; i++) {
        uint32_t e = (from + i) % n;

        if (sim_event(s, e / EV_COUNT, (enum sim_event)(e % EV_COUNT), true))
            return true;
    }
    return false;
}

/* Until no event is possible, a check fails, or `events` have happened. */
void sim_run(struct sim *s, uint64_t events)
{
    uint32_t n_idle = 0;

    while (!sim_is_over(s) && s->now < events) {
        uint16_t e = s->picks[seeded_below(&s->rng, SIM_PICKS)];

        if (sim_event(s, e / EV_COUNT, (enum sim_event)(e % EV_COUNT), false))
            n_idle = 0;
        else if (++n_idle > 100 && !sim_any(s))
            return;
        if (++s->n_since > SIM_PATIENCE)
            sim_wrong(s, "it does not finish");
    }
}

static void check_inst(struct sim *s, const struct sim_inst *inst)
{
    if (inst->submitted != inst->wanted)
        sim_wrong(s, "%s was submitted by %x, not %x", inst->spec->name,
                  inst->submitted, inst->wanted);
    if ((inst->run | inst->failed) != inst->submitted || (inst->run & inst->failed))
        sim_wrong(s, "%s of step %u, submitted by %x, ended on %x, failed on %x",
                  inst->spec->name, inst->step, inst->submitted, inst->run,
                  inst->failed);
}

/* A world that was not disturbed has completed its script. */
void sim_check_end(struct sim *s)
{
    for (uint32_t r = 0; r < s->cfg.n_ranks && !sim_is_over(s); r++)
        if (s->ranks[r].step < s->n_steps || s->ranks[r].n_open > 0)
            sim_wrong(s, "a hang: rank %u waits for ever", r);
    for (uint32_t r = 0; r < s->cfg.n_ranks && !sim_is_over(s); r++)
        if (s->ranks[r].n_tuned != s->n_tunings)
            sim_wrong(s, "rank %u came to %u settings, others to %u", r,
                      s->ranks[r].n_tuned, s->n_tunings);
    for (uint32_t i = 0; i < s->n_insts && !sim_is_over(s); i++)
        check_inst(s, &s->insts[i]);
    for (uint32_t h = 0; h < SIM_ALL_SETS && !sim_is_over(s); h++)
        for (size_t i = 0; i < s->batches[h].n; i++)
            if (s->batches[h].v[i].entered != s->batches[h].v[i].members)
                sim_wrong(s, "batch %zu of set %u was entered by %x of %x", i, h,
                          s->batches[h].v[i].entered, s->batches[h].v[i].members);
}

/* --- life --- */

struct sim *sim_new(uint64_t seed)
{
    struct sim *s = calloc(1, sizeof(*s));

    assert_non_null(s);
    s->steps = calloc(SIM_STEPS, sizeof(*s->steps));
    s->insts = calloc(SIM_INSTS, sizeof(*s->insts));
    assert_non_null(s->steps);
    assert_non_null(s->insts);
    s->seed = seed;
    s->rng.state = seed * 0x2545f4914f6cdd1du;
    s->kill_rank = SIM_NOBODY;
    s->is_traced = getenv("SIM_TRACE") != NULL;
    strbuf_init(&s->out, MESSAGE_MAX_BYTES);
    for (uint32_t r = 0; r < SIM_RANKS; r++)
        s->ranks[r].up.cut_after = s->ranks[r].down.cut_after = UINT32_MAX;
    return s;
}

/* Requires the script. */
int sim_start(struct sim *s)
{
    int r = negotiate_new(&s->cfg, &s->n);

    for (uint32_t i = 0; i < s->cfg.n_ranks && r == 0; i++)
        r = member_new(i, s->cfg.n_ranks, &s->ranks[i].m);
    for (uint32_t i = 0; i < s->cfg.n_ranks; i++)
        s->ranks[i].fusion_bytes = s->cfg.fusion_bytes;
    if (r == 0)
        make_picks(s);
    sim_error(s, r);
    return r;
}

static void link_release(struct sim_link *l)
{
    for (struct sim_msg *m; (m = sim_link_pop(l)) != NULL;)
        free(m);
}

void sim_free(struct sim *s)
{
    for (uint32_t i = 0; i < SIM_RANKS; i++) {
        struct sim_rank *r = &s->ranks[i];

        member_free(r->m);
        link_release(&r->up);
        link_release(&r->down);
        while (r->ops) {
            struct sim_op *op = r->ops;

            r->ops = op->next;
            free(op);
        }
    }
    negotiate_free(s->n);
    strbuf_release(&s->out);
    for (uint32_t h = 0; h < SIM_ALL_SETS; h++)
        free(s->batches[h].v);
    free(s->agreements);
    free(s->steps);
    free(s->insts);
    free(s);
}
