/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers of a simulated world, as engine/transfers.c drives them: a rank may have
 * several that have begun, and carries out anything else when none is left. Those of one
 * pair run one after the other. See sim.h. */
#ifndef TESTS_LIB_SIM_TRANSFERS_H
#define TESTS_LIB_SIM_TRANSFERS_H

#include "tests/lib/sim.h"

bool sim_is_transfer(const struct member_act *act);
/* The rank begins a batch of transfers. */
void sim_begin_transfer(struct sim *s, uint32_t rank, const struct member_act *act);
/* Ends any of them that may end. False: there is none. */
bool sim_end_transfer(struct sim *s, uint32_t rank);
/* The rank has transfers: the act is carried out after them. */
void sim_hold_act(struct sim *s, uint32_t rank, const struct member_act *act);
/* All transfers have ended. */
struct member_act sim_release_act(struct sim *s, uint32_t rank);

#endif
