/* SPDX-License-Identifier: Apache-2.0 */
/* What scripts for the simulated world (sim.h) are made of: steps, operations of
 * any kind, transfers between two ranks. */
#ifndef TESTS_LIB_SIM_PIECES_H
#define TESTS_LIB_SIM_PIECES_H

#include "tests/lib/sim.h"

enum { MODEL_MAX = 72, STEADY_WARM = 12, STEADY_LONG = 8 };

struct model { /* what every step has */
    struct sim_spec v[MODEL_MAX];
    uint32_t n;
};

struct load {
    struct sim *s;
    struct model model;
    uint32_t n_fresh;
    uint32_t all;       /* bit per rank */
    uint32_t groups_in; /* one of so many tensors begins a group */
    bool has_sets;
};

uint32_t load_pick(struct load *l, uint32_t n);
void load_world(struct load *l, uint32_t n_ranks);
struct sim_step *load_add_step(struct load *l);
struct sim_spec *
load_add_op(struct load *l, struct sim_step *step, const struct sim_spec *from);
bool load_has_rows(enum collective c);
struct sim_spec load_make_spec(struct load *l, const char *what, uint32_t number);
void load_add_transfers(struct load *l, struct sim_step *step, uint32_t n);

#endif
