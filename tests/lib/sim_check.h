/* SPDX-License-Identifier: Apache-2.0 */
/* How the simulated world runs and checks the acts of members: batches, failures,
 * joins, agreements. See sim.h. */
#ifndef TESTS_LIB_SIM_CHECK_H
#define TESTS_LIB_SIM_CHECK_H

#include "tests/lib/sim.h"

/* The op has ended on this rank. */
void sim_end_op(struct sim *s, uint32_t rank, struct sim_op *op);
uint64_t
sim_hash_act(const struct member_act *act); /* to see that it does not change */
/* A rank carries out what member_next returned. */
void sim_take_tuning(struct sim *s, uint32_t rank, const struct tuning *t);
void sim_begin_run(struct sim *s, uint32_t rank, const struct member_act *act);
void sim_begin_pair(struct sim *s, uint32_t rank, const struct member_act *act);
void sim_begin_set(struct sim *s, uint32_t rank, const struct member_act *act);
/* False: it waits for other ranks. */
bool sim_end_run(struct sim *s, uint32_t rank);
void sim_take_failure(struct sim *s, uint32_t rank, const struct member_act *act);
void sim_take_join(struct sim *s, uint32_t rank, const struct member_act *act);
void sim_begin_agreement(struct sim *s, uint32_t rank, const struct member_act *act);
/* False: it waits for other ranks. */
bool sim_end_agreement(struct sim *s, uint32_t rank);

#endif
