/* SPDX-License-Identifier: Apache-2.0 */
/* Do the ranks request the same operation? The error messages name the tensor, both
 * ranks and both values, and keep the words of Horovod's messages that users search
 * for. Pure. */
#ifndef RUNTIME_CORE_MISMATCH_H
#define RUNTIME_CORE_MISMATCH_H

#include "runtime/core/message.h"

struct set_view { /* ranks of the process set, ascending; ranks NULL: 0 to n - 1 */
    uint32_t n;
    const uint32_t *ranks;
};
bool set_view_has(const struct set_view *s, uint32_t rank);
/* Is one of its ranks in? is_in: per rank of the world. */
bool set_view_has_any(const struct set_view *s, const bool *is_in);

/* Compares two ranks' requests of one name. 0, or -EINVAL with the message in why. */
int mismatch_pair(const struct tensor_request *a,
                  uint32_t a_rank,
                  const struct tensor_request *b,
                  uint32_t b_rank,
                  struct err *why);
/* Checks one rank's request by itself. As above. */
int mismatch_alone(const struct tensor_request *q,
                   uint32_t rank,
                   const struct set_view *set,
                   struct err *why);
/* May this operation be carried out while some ranks have joined? As above. */
int mismatch_joined(const struct tensor_request *q, struct err *why);

#endif
