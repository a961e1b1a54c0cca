/* SPDX-License-Identifier: Apache-2.0 */
/* The order of transfers between pairs of ranks. Used by negotiate.c only. Pure. */
#ifndef RUNTIME_CORE_PENDING_PAIRS_H
#define RUNTIME_CORE_PENDING_PAIRS_H

#include "runtime/core/pending.h"

/* Reorders the first run of ready transfers so that many of them run at the same time.
 * busy: [n_ranks], scratch. */
void pairs_spread(struct pendings *t, uint64_t *busy);

#endif
