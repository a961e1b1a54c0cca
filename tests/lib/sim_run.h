/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a simulated world (sim.h): which event comes next, and when it is over. */
#ifndef TESTS_LIB_SIM_RUN_H
#define TESTS_LIB_SIM_RUN_H

#include "tests/lib/sim.h"

/* With an empty script. */
struct sim *sim_new(uint64_t seed);
/* Requires the script. */
int sim_start(struct sim *s);
/* Until no event is possible, a check fails, or `events` have happened. */
void sim_run(struct sim *s, uint64_t events);
/* A world that was not disturbed has completed its script. */
void sim_check_end(struct sim *s);
void sim_free(struct sim *s);

#endif
