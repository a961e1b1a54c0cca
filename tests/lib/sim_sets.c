/* SPDX-License-Identifier: Apache-2.0 */
/* Scripts for the simulated world (sim.h): model-parallel jobs, whose steps have
 * tensors of several overlapping process sets, in each step or so rarely that plans of
 * the world's tensors begin in between, and disturbances. */
#include "tests/lib/sim_sets.h"

#include "tests/lib/sim_load.h"
#include "tests/lib/sim_run.h"

/* Some sets, any overlap. */
static void some_sets(struct load *l, uint32_t n)
{
    struct sim *s = l->s;
    struct sim_step *step = load_add_step(l);

    for (uint32_t i = 0; i < n && s->n_sets < SIM_SETS; i++) {
        uint32_t mask = 1 + load_pick(l, l->all);

        if (!load_is_taken(l, 0, mask))
            (void)load_add_set(l, step, (struct sim_set){.mask = mask});
    }
    load_add_step(l)->waits = true;
}

static void spread_over_sets(struct load *l, bool has_world)
{
    struct sim *s = l->s;
    uint32_t h = 0, first = has_world || s->n_sets == 1 ? 0 : 1, n = s->n_sets - first;

    for (uint32_t i = 0; i < l->model.n; i++) {
        struct sim_spec *p = &l->model.v[i];
        bool is_next = i > 0 && p->group != 0 && p->group == p[-1].group;

        if (!is_next) /* a group is of one set */
            h = first + (n > 1 ? load_pick(l, n) : 0);
        p->set = h;
        p->root_place = load_pick(l, sim_mask_size(s->sets[h].mask));
    }
}

/* The world has its tensors in each step; other sets too, or more rarely. */
static void load_paced(struct load *l)
{
    uint32_t n = 10 + load_pick(l, 20), pace[SIM_SETS];

    for (uint32_t h = 0; h < SIM_SETS; h++)
        pace[h] = h == 0 || load_pick(l, 2) ? 1 : 5 + load_pick(l, 10);
    for (uint32_t i = 0; i < n; i++) {
        struct sim_step *step = load_add_step(l);

        for (uint32_t k = 0; k < l->model.n; k++)
            if (i % pace[l->model.v[k].set] == 0)
                load_add_tensor(l, step, k);
    }
}

/* A model-parallel job: overlapping sets with tensors of their own, and the world. */
struct sim *parallel_sim_of_seed(uint64_t seed)
{
    static const load_fn phases[] = {load_paced, load_shapes,        load_disagreements,
                                     load_joins, load_interruptions, load_steady};
    struct load l = {.s = sim_new(seed), .groups_in = 5};
    struct sim *s = l.s;
    uint32_t n;

    load_make_config(&l);
    s->cfg.may_freeze = true;
    load_make_model(&l);
    n = l.model.n < 24 ? l.model.n : 24;
    while (n > 1 && l.model.v[n - 1].group != 0)
        n--;
    l.model.n = n > 0 ? n : 1;
    if (l.model.n == 1)
        l.model.v[0].group = l.model.v[0].group_n = 0;
    some_sets(&l, 1 + load_pick(&l, 8));
    l.has_sets = true;
    spread_over_sets(&l, load_pick(&l, 2));
    load_phases(&l, phases, ARRAY_LEN(phases), 1 + load_pick(&l, 3));
    return s;
}

/* Few tensors, as few slots, and a set without rank 0 whose tensors take them when a
 * plan is sent. */
struct sim *tight_sim_of_seed(uint64_t seed)
{
    struct load l = {.s = sim_new(seed), .groups_in = 4};
    struct sim *s = l.s;
    struct sim_spec p;

    load_make_config(&l);
    load_world(&l, 3 + load_pick(&l, 2));
    s->cfg.may_freeze = true;
    s->is_lazy = true;
    s->depth = 0;
    load_make_model(&l);
    l.model.n = 1 + load_pick(&l, l.model.n < 3 ? l.model.n : 3);
    for (uint32_t i = 0; i < l.model.n; i++)
        l.model.v[i].group = l.model.v[i].group_n = 0;
    s->cfg.cache_capacity = l.model.n + load_pick(&l, 2);
    (void)load_add_set(&l, load_add_step(&l), (struct sim_set){.mask = l.all & ~1u});
    load_add_step(&l)->waits = true;
    for (uint32_t n = 3; n > 0; n--) {
        for (uint32_t i = 3 + load_pick(&l, 3); i > 0; i--)
            (void)load_model_step(&l);
        (void)load_model_step(&l);
        for (uint32_t i = 0; i < 2; i++) {
            struct sim_step *step = load_add_step(&l);

            step->hurries = true;
            p = load_make_spec(&l, "fresh", l.n_fresh++);
            p.set = i == 0 || load_pick(&l, 2);
            (void)load_add_op(&l, step, &p);
        }
    }
    return s;
}
