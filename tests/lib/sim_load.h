/* SPDX-License-Identifier: Apache-2.0 */
/* Scripts for the simulated world (sim.h): what the ranks do for a seed. A
 * training job in phases: steady steps, occasional metrics, changed shapes, new names,
 * ranks that disagree, process sets that are added and removed, uneven data. */
#ifndef TESTS_LIB_SIM_LOAD_H
#define TESTS_LIB_SIM_LOAD_H

#include "tests/lib/sim_pieces.h"

/* --- what adds steps to the script --- */

typedef void (*load_fn)(struct load *l); /* a phase */

void load_make_model(struct load *l);
/* Tensor i of the model. Names alternate where steps overlap. */
void load_add_tensor(struct load *l, struct sim_step *step, uint32_t i);
struct sim_step *load_model_step(struct load *l);
void load_steady(struct load *l);
void load_shapes(struct load *l);
/* Perhaps one rank submits a tensor of this step otherwise than the other ranks. */
void load_make_odd(struct load *l, struct sim_step *step);
void load_disagreements(struct load *l);
/* Has a set from this handle on these ranks? */
bool load_is_taken(const struct load *l, uint32_t from, uint32_t mask);
/* Returns its handle. */
uint32_t load_add_set(struct load *l, struct sim_step *step, struct sim_set set);
/* One operation in set h. */
void load_set_op(struct load *l, struct sim_step *step, uint32_t h, uint32_t number);
void load_interruptions(struct load *l);
void load_joins(struct load *l);
void load_make_config(struct load *l);
/* n of these phases, and perhaps steady steps. */
void load_phases(struct load *l, const load_fn *phases, uint32_t n_phases, uint32_t n);

/* --- whole scripts of a seed; the caller frees the world --- */

struct sim *sim_of_seed(uint64_t seed);
/* Groups of which one tensor changes a few times, then steady steps. */
struct sim *grouped_sim_of_seed(uint64_t seed);

#endif
