/* SPDX-License-Identifier: Apache-2.0 */
/* Scripts for the simulated world (sim.h): what the ranks do for a seed. A
 * training job in phases: steady steps, occasional metrics, changed shapes, new names,
 * ranks that disagree, process sets that are added and removed, uneven data. */
#include "tests/lib/sim_load.h"

#include "tests/lib/sim_run.h"

/* --- the model --- */

void load_make_model(struct load *l)
{
    struct model *m = &l->model;
    uint32_t left = 0, group = 0;

    m->n =
        1
        + load_pick(l, load_pick(l, 100) ? 8 : MODEL_MAX); /* more than 63: two words */
    for (uint32_t i = 0; i < m->n; i++) {
        struct sim_spec *p = &m->v[i];

        *p = load_make_spec(l, "t", i);
        p->root_place = load_pick(l, l->s->cfg.n_ranks);
        if (left == 0 && i + 2 < m->n && load_pick(l, l->groups_in) == 0) {
            left = 2 + load_pick(l, 2);
            left = left > m->n - i ? m->n - i : left;
            group = left << 8 | (i + 1);
        }
        if (left > 0) {
            p->group = group;
            p->group_n = group >> 8;
            left--;
        }
    }
}

/* Tensor i of the model. Names alternate where steps overlap. */
void load_add_tensor(struct load *l, struct sim_step *step, uint32_t i)
{
    uint32_t odd = (uint32_t)(step - l->s->steps) % (l->s->depth + 1);
    struct sim_spec *p = load_add_op(l, step, &l->model.v[i]);

    if (odd > 0)
        (void)snprintf(p->name, sizeof(p->name), "t.%u.%u", i, odd);
    if (p->group)
        p->group += odd << 16; /* the hash of a name of its own */
}

struct sim_step *load_model_step(struct load *l)
{
    struct sim_step *step = load_add_step(l);

    for (uint32_t i = 0; i < l->model.n; i++)
        load_add_tensor(l, step, i);
    return step;
}

/* --- phases --- */

void load_steady(struct load *l)
{
    struct sim *s = l->s;
    uint32_t from = s->n_steps, n = STEADY_WARM + STEADY_LONG;

    for (uint32_t i = 0; i < n; i++)
        (void)load_model_step(l);
    if (s->depth > 0 || s->leave_in > 0 || s->tune_in > 0 || !s->cfg.may_freeze
        || l->has_sets || s->cfg.cache_capacity < SIM_INSTS
        || s->n_phases == SIM_PHASES)
        return;
    s->phases[s->n_phases++] =
        (struct sim_phase){.from = from + STEADY_WARM, .to = from + n - 1};
}

static void load_metrics(struct load *l)
{
    uint32_t n = 6 + load_pick(l, 12), every = 1 + load_pick(l, 6);

    for (uint32_t i = 0; i < n; i++) {
        struct sim_step *step = load_model_step(l);
        struct sim_spec p =
            load_make_spec(l, "metric", i % every ? 1 : load_pick(l, 3));

        if (i % every == 0)
            (void)load_add_op(l, step, &p);
        step->waits = true; /* metrics change their kind, their name is the same */
    }
}

void load_shapes(struct load *l)
{
    uint32_t n = 4 + load_pick(l, 10);

    for (uint32_t i = 0; i < n; i++) {
        struct sim_spec *p = &l->model.v[load_pick(l, l->model.n)];

        if (load_pick(l, 3) == 0)
            p->cols = 1 + load_pick(l, 8);
        if (load_has_rows(p->coll) && load_pick(l, 2) == 0)
            p->uneven = load_pick(l, 4);
        if (load_pick(l, 8) == 0)
            p->dtype = p->dtype == DT_F32 ? DT_F64 : DT_F32;
        (void)load_model_step(l);
    }
}

static void load_fresh(struct load *l)
{
    uint32_t n = 4 + load_pick(l, 10);

    for (uint32_t i = 0; i < n; i++) {
        struct sim_step *step = load_pick(l, 2) ? load_model_step(l) : load_add_step(l);

        for (uint32_t k = 1 + load_pick(l, 4); k > 0; k--) {
            struct sim_spec p = load_make_spec(l, "fresh", l->n_fresh++);

            (void)load_add_op(l, step, &p);
        }
    }
}

/* Does this difference concern this operation? */
static bool can_be_odd(const struct sim_spec *p, enum sim_odd odd)
{
    switch (odd) {
    case ODD_SHAPE:
    case ODD_NDIM:
    case ODD_DTYPE:
        return p->coll != COLL_BARRIER;
    case ODD_OP:
    case ODD_SCALE:
        return p->coll == COLL_ALLREDUCE || p->coll == COLL_REDUCE
               || p->coll == COLL_REDUCESCATTER;
    case ODD_ROOT:
        return p->coll == COLL_BROADCAST || p->coll == COLL_REDUCE
               || p->coll == COLL_GATHER;
    case ODD_NO_GROUP:
        return p->group != 0;
    case ODD_CODEC:
        return p->coll == COLL_ALLREDUCE;
    case ODD_COLL:
        return p->coll != COLL_SENDRECV; /* the name contains it */
    case ODD_NONE:
    case ODD_COUNT:
        break;
    }
    return false;
}

void load_make_odd(struct load *l, struct sim_step *step)
{
    struct sim_spec *p = &step->v[load_pick(l, step->n)];
    enum sim_odd odd = (enum sim_odd)(1 + load_pick(l, ODD_COUNT - 1));
    uint32_t mask = l->s->sets[p->set].mask;

    if (!can_be_odd(p, odd) || sim_mask_size(mask) < 2 || p->odd != ODD_NONE)
        return;
    p->odd = odd;
    p->odd_rank = sim_mask_nth(mask, load_pick(l, sim_mask_size(mask)));
    p->end = END_FAIL;
    for (uint32_t i = 0; i < step->n && p->group; i++)
        if (step->v[i].group == p->group && step->v[i].set == p->set)
            step->v[i].end = END_FAIL;
}

void load_disagreements(struct load *l)
{
    uint32_t n = 4 + load_pick(l, 10);

    for (uint32_t i = 0; i < n; i++) {
        struct sim_step *step = load_model_step(l);

        if (load_pick(l, 2))
            load_make_odd(l, step);
    }
}

/* Pipelines and rings: ranks pass things on, with or without a step of the model. */
static void load_transfers(struct load *l)
{
    uint32_t n = 4 + load_pick(l, 10);

    for (uint32_t i = 0; i < n; i++) {
        struct sim_step *step = load_pick(l, 2) ? load_model_step(l) : load_add_step(l);

        load_add_transfers(l, step, load_pick(l, 5));
        if (load_pick(l, 6) == 0 && step->n > 0)
            load_make_odd(l, step);
    }
}

/* --- process sets --- */

bool load_is_taken(const struct load *l, uint32_t from, uint32_t mask)
{
    for (uint32_t h = from; h < l->s->n_sets; h++)
        if (l->s->sets[h].mask == mask)
            return true;
    return false;
}

static void change_set(struct load *l,
                       struct sim_step *step,
                       enum collective coll,
                       uint32_t h,
                       enum sim_end end)
{
    struct sim_spec p = {.coll = coll,
                         .makes = h,
                         .end = end,
                         .by_members = coll == COLL_SET_ADD && load_pick(l, 2)};

    (void)snprintf(p.name, sizeof(p.name), "%s.%u",
                   coll == COLL_SET_ADD ? "add" : "remove", h);
    (void)load_add_op(l, step, &p);
}

/* Returns its handle. */
uint32_t load_add_set(struct load *l, struct sim_step *step, struct sim_set set)
{
    struct sim *s = l->s;

    s->sets[s->n_sets] = set;
    change_set(l, step, COLL_SET_ADD, s->n_sets, set.is_twin ? END_ANY : END_RUN);
    return s->n_sets++;
}

void load_set_op(struct load *l, struct sim_step *step, uint32_t h, uint32_t number)
{
    struct sim_spec p = load_make_spec(l, "in", number);

    p.set = h;
    p.root_place = load_pick(l, sim_mask_size(l->s->sets[h].mask));
    (void)load_add_op(l, step, &p);
}

/* Sets are added, used beside the world and each other, and removed. */
static void process_sets(struct load *l)
{
    struct sim *s = l->s;
    uint32_t first = s->n_sets, n = 2 + load_pick(l, 8);
    struct sim_step *step = load_add_step(l);

    step->waits = true;
    for (uint32_t k = 1 + load_pick(l, 3); k > 0 && s->n_sets < SIM_SETS; k--) {
        uint32_t mask = 1 + load_pick(l, l->all);
        bool is_twin = load_is_taken(l, 0, mask);

        if ((is_twin && load_pick(l, 3)) || load_is_taken(l, first, mask))
            continue;
        (void)load_add_set(l, step, (struct sim_set){.mask = mask, .is_twin = is_twin});
    }
    l->has_sets = true;
    for (uint32_t i = 0; i < n; i++) {
        step = load_pick(l, 2) ? load_model_step(l) : load_add_step(l);
        step->waits = i == 0;
        for (uint32_t h = first; h < s->n_sets; h++)
            for (uint32_t k = load_pick(l, 3); k > 0 && !s->sets[h].is_twin; k--)
                load_set_op(l, step, h, k + 10 * ((s->n_steps) % (s->depth + 1)));
        if (load_pick(l, 6) == 0 && step->n > 0)
            load_make_odd(l, step);
    }
    step = load_add_step(l);
    step->hurries = load_pick(l, 2);
    for (uint32_t h = first; h < s->n_sets; h++) {
        bool is_used =
            load_pick(l, 2); /* while it goes: it stays, or the tensor fails */

        if (s->sets[h].is_twin || load_pick(l, 4) == 0)
            continue;
        s->sets[h].is_doomed = true;
        change_set(l, step, COLL_SET_REMOVE, h, is_used ? END_ANY : END_RUN);
        if (is_used) {
            load_set_op(l, step, h, 90);
            step->v[step->n - 1].end = END_ANY;
        }
    }
    load_add_step(l)->waits = true;
}

/* A process set that is not removed; 0: none. */
static uint32_t some_set(struct load *l)
{
    struct sim *s = l->s;
    uint32_t mask = 1 + load_pick(l, l->all), added;

    for (uint32_t h = 1; h < s->n_sets; h++)
        if (!s->sets[h].is_twin && !s->sets[h].is_doomed)
            return h;
    if (s->n_sets == SIM_SETS || load_is_taken(l, 0, mask))
        return 0;
    added = load_add_set(l, load_add_step(l), (struct sim_set){.mask = mask});
    load_add_step(l)->waits = true;
    return added;
}

/* A new tensor after a few equal steps, perhaps of some ranks only. */
void load_interruptions(struct load *l)
{
    uint32_t h = load_pick(l, 2) ? some_set(l) : 0;

    for (uint32_t n = 2 + load_pick(l, 3); n > 0; n--) {
        struct sim_spec p = load_make_spec(l, "fresh", l->n_fresh++);

        p.set = h;
        p.root_place = load_pick(l, sim_mask_size(l->s->sets[h].mask));
        for (uint32_t i = 3 + load_pick(l, 3); i > 0; i--)
            (void)load_model_step(l);
        (void)load_add_op(l, load_model_step(l), &p);
    }
}

/* --- uneven data --- */

static bool is_joinable(const struct sim_spec *p)
{
    return p->coll == COLL_ALLREDUCE && p->op == OP_SUM;
}

/* Sets the result of operations that some ranks do not submit. */
static void expect_joined(struct sim *s, struct sim_step *step)
{
    for (uint32_t i = 0; i < step->n; i++) {
        struct sim_spec *p = &step->v[i];
        uint32_t mask = sim_spec_mask(s, p);

        if ((mask & step->active) == mask || (mask & step->active) == 0
            || is_joinable(p))
            continue;
        p->end = END_FAIL;
        for (uint32_t k = 0; k < step->n && p->group; k++)
            if (step->v[k].group == p->group)
                step->v[k].end = END_FAIL;
    }
}

/* Adds operations of process sets, and those that a join forbids. */
static void more_in_a_join(struct load *l, struct sim_step *step)
{
    struct sim *s = l->s;

    for (uint32_t h = 1; h < s->n_sets; h++)
        if (!s->sets[h].is_twin && !s->sets[h].is_doomed && load_pick(l, 2))
            load_set_op(l, step, h, 20 + h + 20 * (s->n_steps % (s->depth + 1)));
    load_add_transfers(l, step, load_pick(l, 3));
    if (load_pick(l, 8) == 0 && s->n_sets < SIM_SETS)
        (void)load_add_set(l, step, (struct sim_set){.mask = 1, .is_twin = true});
}

void load_joins(struct load *l)
{
    struct sim *s = l->s;
    uint32_t n = 2 + load_pick(l, 6), until[SIM_RANKS] = {0}, inst = s->n_insts++;
    struct sim_spec join = {.coll = COLL_JOIN, .odd_rank = SIM_NOBODY, .inst = inst};
    struct sim_step *step;

    (void)snprintf(join.name, sizeof(join.name), "join");
    for (uint32_t r = 0; r < s->cfg.n_ranks; r++)
        until[r] = load_pick(l, n + 1);
    for (uint32_t i = 0; i <= n; i++) {
        uint32_t active = 0, joining = 0;

        for (uint32_t r = 0; r < s->cfg.n_ranks; r++) {
            active |= (uint32_t)(until[r] > i) << r;
            joining |= (uint32_t)(until[r] == i) << r;
        }
        if (joining) {
            step = load_add_step(l);
            step->active = joining;
            step->hurries = load_pick(l, 2);
            step->v[step->n++] = join;
            s->insts[inst].spec = &step->v[0];
            s->insts[inst].step = (uint32_t)(step - s->steps);
            s->insts[inst].wanted |= joining;
        }
        if (!active)
            break;
        step = load_model_step(l);
        more_in_a_join(l, step);
        step->active = active;
        for (uint32_t k = 0; k < step->n; k++)
            s->insts[step->v[k].inst].wanted = active & sim_spec_mask(s, &step->v[k]);
        expect_joined(s, step);
    }
    load_add_step(l)->waits = true;
}

/* --- a seed's script --- */

void load_make_config(struct load *l)
{
    static const uint32_t caches[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 12};
    static const uint64_t bytes[] = {0, 64, 300, 1 << 20};
    struct sim *s = l->s;

    load_world(l, 1 + (load_pick(l, 4) ? load_pick(l, 5) : load_pick(l, SIM_RANKS)));
    s->cfg.cache_capacity = load_pick(l, 2) ? SLOTS_MAX : caches[load_pick(l, 10)];
    s->cfg.fusion_bytes = bytes[load_pick(l, 4)];
    s->cfg.fuses_groups_apart = load_pick(l, 2);
    s->cfg.may_freeze = load_pick(l, 8) > 0;
    s->depth = load_pick(l, 3) ? 0 : load_pick(l, 3);
    s->leave_in = load_pick(l, 4) ? 0 : 20 + load_pick(l, 300);
    s->tune_in = load_pick(l, 4) ? 0 : 20 + load_pick(l, 1000);
}

/* n of these phases, and perhaps steady steps. */
void load_phases(struct load *l, const load_fn *phases, uint32_t n_phases, uint32_t n)
{
    for (; n > 0; n--)
        phases[load_pick(l, n_phases)](l);
    if (load_pick(l, 2))
        load_steady(l);
}

struct sim *sim_of_seed(uint64_t seed)
{
    static const load_fn phases[] = {
        load_steady,        load_metrics,       load_shapes,   load_fresh,
        load_disagreements, process_sets,       load_joins,    load_joins,
        load_interruptions, load_interruptions, load_transfers};
    struct load l = {.s = sim_new(seed), .groups_in = 4};

    load_make_config(&l);
    load_make_model(&l);
    if (load_pick(&l, 4) == 0) /* hardly enough: slots are reused */
        l.s->cfg.cache_capacity = l.model.n + load_pick(&l, 2);
    load_phases(&l, phases, ARRAY_LEN(phases), 1 + load_pick(&l, 4));
    return l.s;
}

/* Groups of which one tensor changes a few times, then steady steps. */
struct sim *grouped_sim_of_seed(uint64_t seed)
{
    struct load l = {.s = sim_new(seed), .groups_in = 1};

    load_make_config(&l);
    load_make_model(&l);
    for (uint32_t n = 2 + load_pick(&l, 2); n > 0; n--) {
        struct sim_spec *p = &l.model.v[load_pick(&l, l.model.n)];

        p->cols = 9 + n;
        for (uint32_t i = 4 + load_pick(&l, 4); i > 0; i--)
            (void)load_model_step(&l);
    }
    load_steady(&l);
    return l.s;
}
