/* SPDX-License-Identifier: Apache-2.0 */
/* The order of transfers between pairs of ranks. Only for negotiate.c. Pure. */
#ifndef RUNTIME_CORE_PENDING_PAIRS_H
#define RUNTIME_CORE_PENDING_PAIRS_H

#include "runtime/core/pending.h"

/* The first run of ready transfers, put so that many of them can be carried out at
 * once. busy: [n_ranks], scratch. */
void pairs_spread(struct pendings *t, uint64_t *busy);

#endif
