/* SPDX-License-Identifier: Apache-2.0 */
/* The gather window: how long a tensor that arrived is held back, so that others may be
 * fused with it. It is an upper bound: it ends as soon as nothing is to be won by it,
 * namely when what came fills a batch, when something came that cannot be fused, or
 * when the caller knows that nothing more is to come. Pure. */
#ifndef RUNTIME_CORE_GATHER_H
#define RUNTIME_CORE_GATHER_H

#include "runtime/core/message.h"

struct gather { /* zeroed: no window, nothing is ever held back */
    uint64_t window_ns;
    uint64_t fill_bytes; /* of a batch; 0: nothing is fused */
    /* since the oldest that is held back */
    uint64_t until_ns; /* 0: nothing is held back */
    uint64_t bytes;
};

void gather_set(struct gather *g, uint64_t window_ns, uint64_t fill_bytes);
/* Req arrived at arrived_ns and has not been told to anybody. */
void gather_add(struct gather *g,
                const struct tensor_request *req,
                uint64_t arrived_ns);
/* Is what arrived to be held back still? is_all: nothing more is to come. Once it is
 * not, nothing is held back before the next gather_add. */
bool gather_holds(struct gather *g, uint64_t now_ns, bool is_all);

#endif
