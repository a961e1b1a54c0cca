/* SPDX-License-Identifier: Apache-2.0 */
/* The places of the members of an elastic world. Pure. */
#ifndef RUNTIME_LAUNCH_CORE_ELASTIC_PLACES_H
#define RUNTIME_LAUNCH_CORE_ELASTIC_PLACES_H

#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/contract/places.h"
#include "runtime/launch/core/elastic.h"

/* Sets ret[rank] for each of the n members, which are different slots by rank (slot:
 * worker * slots + i, i < slots). Hosts are the workers that have a member, in their order.
 * A member whose i is a local rank of its host has that local rank, so that a GPU which a
 * process selects by it is that of the slot; the rest have the free ones in the order of
 * slots. -ENOMEM. */
int elastic_places(const uint32_t *members,
                   uint32_t n,
                   uint32_t slots,
                   struct place *ret,
                   struct err *err);

/* A rank that no process has, or will probably get. */
uint32_t elastic_free_rank(const struct elastic *e);
/* What the environment of a new process has as its place, because scripts read it before
 * they are in a world: as if all processes that can run now were in one world, and its
 * local rank is that of its slot, so that a GPU which it selects by it is the slot's. */
void elastic_place_new(const struct elastic *e, uint32_t slot, struct place *ret);

#endif
