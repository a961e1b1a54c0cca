/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator that is kept over a failure (NCCL 2.28.7 and later): revoked when its
 * world fails, carried to the next world by the caller, and shrunk there if all new
 * members were in it, in the same order. Otherwise it is aborted. */
#ifndef RUNTIME_BACKEND_NCCL_PARK_H
#define RUNTIME_BACKEND_NCCL_PARK_H

#include "runtime/backend/nccl/comm.h"

#define PARK_NS (120 * NS_PER_S) /* kept no longer */

enum park_state { PARK_KEPT, PARK_CLAIMED, PARK_OVER };

struct device_parked {
    const struct nccl_api *nccl;
    nccl_comm nc; /* the keeper's until it is claimed */
    uint8_t id[16];
    uint32_t rank, size;    /* ours in it */
    _Atomic uint32_t state; /* enum park_state: a futex word; acq_rel */
    _Atomic uint32_t refs;  /* the owner and the keeper */
    _Atomic uint64_t until_ns;
};

/* May c be revoked, rather than aborted? Only the one communicator of a world: an
 * abort of others would reach it through what they share. */
bool park_wants(const struct device *g, const struct comm *c);
/* Takes the communicator in COMM_PARKED out of g, whose threads are out; NULL: none. */
struct device_parked *park_take(struct device *g);
/* Aborts it, on a thread of its own, if it still exists; accepts NULL. */
void park_free(struct device_parked *p);
/* Describes it in a card and claims it for the caller. Nothing if its time is over.
 * Accepts NULL. */
void park_fill(struct device_parked *p, struct gpu_card *ret);
/* The id of a communicator that was shrunk from id; equal on all members. */
void park_id(const uint8_t id[16], const struct comm_terms *t, uint8_t ret[16]);

#endif
