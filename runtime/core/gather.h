/* SPDX-License-Identifier: Apache-2.0 */
/* The gather window: tensors are held back for this time so that later ones can share a
 * batch. It is an upper bound and ends at once when waiting gains nothing: when the
 * held tensors fill a batch, when a tensor arrives that cannot be fused, or when the
 * caller knows that no more will arrive. Pure. */
#ifndef RUNTIME_CORE_GATHER_H
#define RUNTIME_CORE_GATHER_H

#include "runtime/core/message.h"

struct gather { /* zeroed: no window, nothing is held back */
    uint64_t window_ns;
    uint64_t fill_bytes; /* of a batch; 0: nothing is fused */
    /* since the first held tensor */
    uint64_t until_ns; /* 0: nothing is held back */
    uint64_t bytes;
};

void gather_set(struct gather *g, uint64_t window_ns, uint64_t fill_bytes);
/* req arrived at arrived_ns and has not been sent yet. */
void gather_add(struct gather *g,
                const struct tensor_request *req,
                uint64_t arrived_ns);
/* Are the held tensors to be held back longer? is_all: no more will arrive. After
 * false, nothing is held until the next gather_add. */
bool gather_holds(struct gather *g, uint64_t now_ns, bool is_all);

#endif
