/* SPDX-License-Identifier: Apache-2.0 */
/* Sends and receives of host memory that have begun: one with each of several peers at
 * the same time. In the seat only. */
#ifndef RUNTIME_ENGINE_TRANSFERS_H
#define RUNTIME_ENGINE_TRANSFERS_H

#include <stddef.h>

#include "runtime/backend/backend.h"
#include "runtime/core/member.h"
#include "runtime/core/message.h"

struct engine;
struct process_set;
struct transfer;

struct transfers {
    size_t n;                     /* all that have not ended */
    struct transfer *head, *tail; /* waiting for an earlier one of their pair */
    struct transfer **posted;     /* [n_posted] one a pair, oldest first */
    struct backend **backends;    /* [n_posted] of each */
    size_t n_posted, posted_cap, backends_cap;
};

/* Does this act carry out a batch of such transfers? */
static inline bool transfer_is(const struct member_act *act)
{
    return act->kind == MEMBER_RUN && act->items[0].req->coll == COLL_SENDRECV
           && act->items[0].req->place == PLACE_HOST;
}
/* Begins the act's batch; set is its pair. Errors as of carry_run. */
int transfers_add(struct engine *e,
                  const struct process_set *set,
                  const struct member_act *act,
                  bool *ret_is_ours,
                  struct err *err);
/* One round: moves what can be moved. Where none of them ends, waits until one of them
 * may move again, a few ms at most. An error is the backend's. */
int transfers_step(struct engine *e, struct err *err);
/* Until all have ended; handles control messages meanwhile. */
int transfers_drain(struct engine *e, struct err *err);
/* Forgets them: their operations are still in the tensor queue. */
void transfers_drop(struct transfers *all);

#endif
