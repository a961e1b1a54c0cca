/* SPDX-License-Identifier: Apache-2.0 */
/* Probes: which rank sends to this one under a name (pair.h)? Used by pending.c only.
 * Pure. */
#ifndef RUNTIME_CORE_PENDING_PROBES_H
#define RUNTIME_CORE_PENDING_PROBES_H

#include "runtime/core/pending.h"

/* A tensor has arrived from a rank, and is not complete yet: if it is a probe, or a send
 * that one asks for, the probe becomes ready, with the sender as its root. */
void probes_match(struct pendings *t, struct pending *p);

#endif
