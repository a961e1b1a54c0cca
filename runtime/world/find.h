/* SPDX-License-Identifier: Apache-2.0 */
/* The first step of a world: settings, this process' place, the job token. */
#ifndef RUNTIME_WORLD_FIND_H
#define RUNTIME_WORLD_FIND_H

#include "runtime/world/world.h"

/* Sets w->settings, contract, token, membership and start_deadline_ns. Blocks only if the
 * ranks meet through the launcher's channel, and in an elastic job until the launcher
 * has a world for this process. */
int world_find_place(struct world *w,
                     struct kept_state *m,
                     const struct world_config *config,
                     struct err *err);
/* Rank 0's socket for the rendezvous. port 0: any. */
int find_listen(uint16_t port, int *ret_fd, uint16_t *ret_port, struct err *err);

#endif
