/* SPDX-License-Identifier: Apache-2.0 */
/* One process for each rank: a process that inherited the rank of another one, as a
 * worker of multiprocessing does, is refused. */
#ifndef RUNTIME_WORLD_CLAIM_H
#define RUNTIME_WORLD_CLAIM_H

#include "runtime/contract/contract.h"

/* Claims the rank until the process ends. *fd: 0 before the first call; kept by the
 * caller. -EINVAL: another live process of this user and host has claimed it. */
int claim_rank(const struct contract *c, int *fd, struct err *err);

#endif
