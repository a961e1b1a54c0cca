/* SPDX-License-Identifier: Apache-2.0 */
/* What the coordinator tells counters and timeline, and the look for NaN: one call
 * where something happens. All in the seat. While the timeline is off each costs a load
 * and some additions. */
#ifndef RUNTIME_API_OBSERVE_H
#define RUNTIME_API_OBSERVE_H

#include "runtime/api/coordinator.h"
#include "runtime/core/member.h"
#include "runtime/core/nonfinite.h"

/* This rank's tensor enters negotiation. */
void observe_submit(struct coordinator *co, const struct op *op);
/* negotiate_config's heard; arg is the coordinator: rank has submitted it, to rank 0.
 */
void observe_request(void *arg, uint32_t rank, const struct tensor_request *q);
/* New tensors begin a round of work. */
void observe_cycle(struct coordinator *co);

/* A batch is to be carried out: its tensors' negotiation is over. */
void observe_run(struct coordinator *co, const struct member_act *act);
/* op gets memory for its result. */
void observe_allocate(struct coordinator *co, const struct op *op);
/* The batch goes to the backend. HVD_NANCHECK: -EDOM with the sentence that ends the
 * world when an input of this rank is not finite. *ret_ns: now. */
int observe_transfer(struct coordinator *co,
                     const struct member_act *act,
                     uint64_t *ret_ns,
                     struct err *err);
/* A batch goes to the GPUs, whose inputs are looked at there. Now. */
/* What the device has counted, and which it is; the seat. */
void observe_device(struct coordinator *co);
/* The set's members are about to meet on the GPUs, because of these. */
void observe_init_device(struct coordinator *co, const struct member_act *act);
uint64_t observe_posted(struct coordinator *co, const struct member_act *act);
/* HVD_NANCHECK: -EDOM with the sentence about this input of op. */
int observe_nonfinite(const struct coordinator *co,
                      const struct op *op,
                      const struct nonfinite *bad,
                      struct err *err);
/* It has come back; n members, since began_ns. */
void observe_transferred(struct coordinator *co,
                         const struct member_act *act,
                         uint32_t n_members,
                         uint64_t began_ns);
/* op is about to end. */
void observe_end(struct coordinator *co, const struct op *op, int status);

/* Messages of the control channel, of n bytes to or from `n_peers`. */
void observe_sent(struct coordinator *co, size_t n, uint32_t n_peers);
void observe_received(struct coordinator *co, size_t n);

/* At the end of each step: what the member counted, and what the timeline has to say.
 */
void observe_step(struct coordinator *co);

/* For coordinator.c: with control and backend known. */
void observe_init(struct coordinator *co);
/* The timeline of HOROVOD_TIMELINE; that it cannot be written is a warning. */
void observe_start(struct coordinator *co);

#endif
