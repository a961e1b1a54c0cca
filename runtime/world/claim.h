/* SPDX-License-Identifier: Apache-2.0 */
/* One process for each rank: a process that inherited the rank of another one, as a
 * worker of multiprocessing does, is refused. */
#ifndef RUNTIME_WORLD_CLAIM_H
#define RUNTIME_WORLD_CLAIM_H

#include "runtime/contract/contract.h"

/* Claims the rank until claim_drop. *fd: 0 where nothing is claimed; kept by the caller.
 * -EINVAL: another live process of this user and host has claimed it. */
int claim_rank(const struct contract *c, int *fd, struct err *err);
/* The same for a slot of an elastic job; address: HVD_ELASTIC. */
int claim_slot(const char *job_id, const char *address, int *fd, struct err *err);
/* When the world has been left, and in a forked child, which has a copy. */
void claim_drop(int *fd);

#endif
