/* SPDX-License-Identifier: Apache-2.0 */
/* Scripts for the simulated world (sim.h): model-parallel jobs, whose steps have
 * tensors of several overlapping process sets, in each step or so rarely that plans of
 * the world's tensors begin in between, and disturbances. */
#ifndef TESTS_LIB_SIM_SETS_H
#define TESTS_LIB_SIM_SETS_H

#include "tests/lib/sim.h"

/* A model-parallel job: overlapping sets with tensors of their own, and the world. */
struct sim *parallel_sim_of_seed(uint64_t seed);
/* Few tensors, as few slots, and a set without rank 0 whose tensors take them when a
 * plan is sent. */
struct sim *tight_sim_of_seed(uint64_t seed);

#endif
