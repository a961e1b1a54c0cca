/* SPDX-License-Identifier: Apache-2.0 */
/* Reports events to counters and timeline, and checks for NaN: one call for each kind
 * of event. In the seat only. While the timeline is off each call costs a load and some
 * additions. */
#ifndef RUNTIME_OBSERVE_OBSERVE_H
#define RUNTIME_OBSERVE_OBSERVE_H

#include "runtime/backend/device.h"
#include "runtime/core/member.h"
#include "runtime/core/nonfinite.h"
#include "runtime/engine/op.h"
#include "runtime/observe/reporter.h"
#include "runtime/observe/stats.h"
#include "runtime/observe/timeline.h"
#include "runtime/world/settings.h"

struct observer {
    uint32_t rank;                   /* constant, as the next two */
    const struct settings *settings; /* outlive it */
    const struct member *member;     /* its counts are copied; outlives it */
    struct stats stats;              /* written in the seat, read by any thread */
    struct timeline timeline;        /* its own rules */
    struct reporter reporter;        /* of HVD_REPORT; written in the seat */
    uint64_t device_ready_ns;        /* of the device's, what READY_NS contains */
};

/* The member's counts start at 0. members: by rank; outlive it. link: how the timeline's
 * messages leave. 0, -ENOMEM. */
int observe_init(struct observer *o,
                 const struct settings *s,
                 uint32_t rank,
                 uint32_t size,
                 const struct member *member,
                 const struct control_member *members,
                 const struct timeline_link *link);
void observe_release(struct observer *o); /* accepts a zeroed one */
/* Before the first step: starts the timeline of HOROVOD_TIMELINE; a file that cannot be
 * written causes a warning. */
void observe_start(struct observer *o);

/* This rank's tensor enters negotiation. */
void observe_submit(struct observer *o, const struct op *op);
/* negotiate_config's on_request; arg is the observer: rank 0 has received a request
 * of rank. */
void observe_request(void *arg, uint32_t rank, const struct tensor_request *q);
/* New tensors begin a round of work. */
void observe_cycle(struct observer *o);

/* A batch starts: the negotiation of its tensors is complete. */
void observe_run(struct observer *o, const struct member_act *act);
/* Memory for the result of op is allocated. */
void observe_allocate(struct observer *o, const struct op *op);
/* The batch is passed to the backend. HVD_NANCHECK: -EDOM with the text that ends the
 * world if an input of this rank is not finite. *ret_ns: now. */
int observe_transfer(struct observer *o,
                     const struct member_act *act,
                     uint64_t *ret_ns,
                     struct err *err);
/* Copies the device's counters and versions. */
void observe_device(struct observer *o, const struct device_counts *c);
/* The set's members are about to connect on the GPUs, for these tensors. */
void observe_init_device(struct observer *o, const struct member_act *act);
uint64_t observe_posted(struct observer *o, const struct member_act *act);
/* HVD_NANCHECK: -EDOM with the text about this input of op. */
int observe_nonfinite(const struct observer *o,
                      const struct op *op,
                      const struct nonfinite *bad,
                      struct err *err);
/* The batch is done; n members, since began_ns. 0: it was carried out without the other
 * ranks (HVD_DRY_RUN). */
void observe_transferred(struct observer *o,
                         const struct member_act *act,
                         uint32_t n_members,
                         uint64_t began_ns);
/* op is about to end. */
void observe_end(struct observer *o, const struct op *op, int status);

/* Messages of the control channel, of n bytes to or from `n_peers`. */
void observe_sent(struct observer *o, size_t n, uint32_t n_peers);
void observe_received(struct observer *o, size_t n);

/* At the end of each step, which began at now_ns: the member's counts if something was
 * done, and the timeline's due messages. */
void observe_step(struct observer *o, bool moved, uint64_t now_ns);

#endif
