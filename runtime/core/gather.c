/* SPDX-License-Identifier: Apache-2.0 */
/* One window at a time. The first tensor opens it and later ones share it, so no tensor
 * waits longer than the window. Called by engine/step.c. */
#include "runtime/core/gather.h"

#include "runtime/core/fusion.h"

void gather_set(struct gather *g, uint64_t window_ns, uint64_t fill_bytes)
{
    g->window_ns = window_ns;
    g->fill_bytes = fill_bytes;
    if (g->until_ns > 0)
        g->until_ns = 1; /* the held tensors were counted against the old bound */
}

void gather_add(struct gather *g, const struct tensor_request *req, uint64_t arrived_ns)
{
    uint64_t bytes;

    if (g->window_ns == 0)
        return;
    if (g->until_ns == 0) {
        g->until_ns = arrived_ns + g->window_ns;
        g->bytes = 0;
    }
    if (!fusion_is_possible(req) || request_size(req, NULL, &bytes, NULL) < 0
        || bytes >= g->fill_bytes || g->bytes >= g->fill_bytes - bytes)
        g->until_ns = 1; /* in the past */
    else
        g->bytes += bytes;
}

bool gather_holds(struct gather *g, uint64_t now_ns, bool is_all)
{
    if (g->until_ns == 0)
        return false;
    if (now_ns < g->until_ns && !is_all)
        return true;
    g->until_ns = 0;
    return false;
}
