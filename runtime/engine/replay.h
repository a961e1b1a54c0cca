/* SPDX-License-Identifier: Apache-2.0 */
/* HVD_REPLAY: repeats allreduces of host memory and compares the results, on this rank
 * and between the ranks (core/replay.h). Used in the seat only, by carry.c. */
#ifndef RUNTIME_ENGINE_REPLAY_H
#define RUNTIME_ENGINE_REPLAY_H

#include "runtime/engine/carry.h"

struct repeat {     /* of one batch; zeroed: it is not repeated */
    uint32_t step;  /* 0: it is not repeated */
    uint8_t *bytes; /* its inputs, then the results of the second sum; owned */
};

/* Before a batch is carried out: counts its sums and copies its inputs if one of them is
 * due. -ENOMEM, -E2BIG. */
int repeat_begin(struct carry *c,
                 const struct member_act *act,
                 const struct batch *batch,
                 struct repeat *ret,
                 struct err *err);
/* After it: carries it out again. -EDOM: with the sentence; others: the backend's. */
int repeat_compare(struct carry *c,
                   const struct process_set *set,
                   const struct member_act *act,
                   const struct batch *batch,
                   struct repeat *r,
                   struct err *err);
/* On rank 0: logs that all repeated sums were equal; once, when the steps are over or
 * is_end. */
void repeat_log(struct carry *c, bool is_end);
void repeat_release(struct repeat *r);

#endif
