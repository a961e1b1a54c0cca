/* SPDX-License-Identifier: Apache-2.0 */
/* What scripts for the simulated world (sim.h) are made of: steps, operations of
 * any kind, transfers between two ranks. */
#include "tests/lib/sim_pieces.h"

#include "runtime/core/pair.h"

uint32_t load_pick(struct load *l, uint32_t n)
{
    return seeded_below(&l->s->rng, n);
}

/* --- pieces --- */

void load_world(struct load *l, uint32_t n_ranks)
{
    struct sim *s = l->s;

    s->cfg.n_ranks = n_ranks;
    l->all = (1u << n_ranks) - 1;
    s->sets[0] = (struct sim_set){.mask = l->all, .has_id = true, .in = l->all};
    s->n_sets = 1;
}

struct sim_step *load_add_step(struct load *l)
{
    struct sim_step *step = &l->s->steps[l->s->n_steps];

    assert_true(l->s->n_steps < SIM_STEPS);
    l->s->n_steps++;
    step->active = l->all;
    return step;
}

struct sim_spec *
load_add_op(struct load *l, struct sim_step *step, const struct sim_spec *from)
{
    struct sim *s = l->s;
    struct sim_spec *p = &step->v[step->n];
    struct sim_inst *inst = &s->insts[s->n_insts];

    assert_true(step->n < SIM_STEP_OPS && s->n_insts < SIM_INSTS);
    step->n++;
    *p = *from;
    p->odd_rank = SIM_NOBODY;
    p->inst = s->n_insts++;
    *inst = (struct sim_inst){.spec = p,
                              .step = (uint32_t)(step - s->steps),
                              .wanted = step->active & sim_spec_mask(s, p)};
    return p;
}

bool load_has_rows(enum collective c)
{
    return c == COLL_ALLGATHER || c == COLL_GATHER || c == COLL_ALLTOALL;
}

struct sim_spec load_make_spec(struct load *l, const char *what, uint32_t number)
{
    static const enum collective colls[] = {
        COLL_ALLREDUCE, COLL_ALLREDUCE,     COLL_ALLREDUCE, COLL_ALLREDUCE,
        COLL_ALLGATHER, COLL_BROADCAST,     COLL_BARRIER,   COLL_ALLTOALL,
        COLL_REDUCE,    COLL_REDUCESCATTER, COLL_GATHER,    COLL_ALLREDUCE,
    };
    struct sim_spec p = {.coll = colls[load_pick(l, 12)],
                         .dtype = load_pick(l, 4) ? DT_F32 : DT_F16,
                         .op = load_pick(l, 6) ? OP_SUM : OP_MIN,
                         .rows = 1 + load_pick(l, 4),
                         .cols = 1 + load_pick(l, 8),
                         .odd_rank = SIM_NOBODY};

    p.uneven = load_has_rows(p.coll) ? load_pick(l, 4) : 0;
    (void)snprintf(p.name, sizeof(p.name), "%s.%u", what, number);
    return p;
}

/* --- transfers --- */

static uint32_t pair_handle(struct sim *s, uint32_t a, uint32_t b)
{
    uint32_t h = SIM_SETS;

    while (h < SIM_SETS + s->n_pairs && s->sets[h].id != pair_of(a, b))
        h++;
    if (h == SIM_SETS + s->n_pairs) {
        s->sets[h] = (struct sim_set){
            .mask = 1u << a | 1u << b, .id = pair_of(a, b), .has_id = true};
        s->n_pairs++;
    }
    return h;
}

/* From rank a to b, perhaps back under the same name, perhaps both or none. */
static void add_transfer(struct load *l, struct sim_step *step, uint32_t number)
{
    uint32_t n = l->s->cfg.n_ranks, a = load_pick(l, n),
             b = (a + 1 + load_pick(l, n)) % n;
    bool is_both = load_pick(l, 3) == 0, is_group = is_both && load_pick(l, 2);
    char what[16], name[TENSOR_NAME_MAX];

    if (a == b)
        return;
    (void)snprintf(what, sizeof(what), "p.%u", number);
    for (uint32_t back = 0; back <= is_both; back++) {
        uint32_t src = back ? b : a, dst = back ? a : b;
        struct sim_spec p = load_make_spec(l, what, 0);

        p.coll = COLL_SENDRECV;
        p.uneven = 0;
        p.set = pair_handle(l->s, a, b);
        p.root_place = src > dst;
        p.group = is_group ? 1000 + number : 0;
        p.group_n = is_group ? 2 : 0;
        (void)pair_name(what, src, dst, name);
        (void)snprintf(p.name, sizeof(p.name), "%.40s", name);
        (void)load_add_op(l, step, &p);
    }
}

void load_add_transfers(struct load *l, struct sim_step *step, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++)
        add_transfer(l, step, k + 10 * (l->s->n_steps % (l->s->depth + 1)));
}
