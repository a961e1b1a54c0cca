/* SPDX-License-Identifier: Apache-2.0 */
/* Do the ranks mean the same operation? The sentences that people read when they do
 * not: they name the tensor, both ranks and both values, and keep the words that
 * Horovod's users search for. Pure. */
#ifndef RUNTIME_CORE_MISMATCH_H
#define RUNTIME_CORE_MISMATCH_H

#include "runtime/core/message.h"

struct set_view { /* ranks of the process set, ascending; ranks NULL: 0 to n - 1 */
    uint32_t n;
    const uint32_t *ranks;
};
bool set_view_has(const struct set_view *s, uint32_t rank);

/* Two ranks' requests of one name. 0, or -EINVAL with the sentence. */
int mismatch_pair(const struct tensor_request *a,
                  uint32_t a_rank,
                  const struct tensor_request *b,
                  uint32_t b_rank,
                  struct err *why);
/* What is wrong with one rank's request whatever the others say. */
int mismatch_alone(const struct tensor_request *q,
                   uint32_t rank,
                   const struct set_view *set,
                   struct err *why);
/* May this operation be carried out while some ranks have joined? */
int mismatch_joined(const struct tensor_request *q, struct err *why);

#endif
