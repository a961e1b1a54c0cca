/* SPDX-License-Identifier: Apache-2.0 */
/* The first step of a world: settings, this process' place, the job token. */
#ifndef RUNTIME_WORLD_FIND_H
#define RUNTIME_WORLD_FIND_H

#include "runtime/world/world.h"

/* Sets w->settings, contract, token and start_deadline_ns (start_timeout_ns 0: the
 * value of the settings). Blocks only if the ranks meet through the launcher's
 * channel. */
int world_find_place(struct world *w,
                     struct kept_state *m,
                     uint64_t start_timeout_ns,
                     struct err *err);
/* Rank 0's socket for the rendezvous. port 0: any. */
int find_listen(uint16_t port, int *ret_fd, uint16_t *ret_port, struct err *err);

#endif
