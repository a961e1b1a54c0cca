/* SPDX-License-Identifier: Apache-2.0 */
/* The bucket as a virtual clock: next_ns advances by one interval per request and never
 * lags more than the burst behind now. No counter, no refill timer, no drift. */
#include "operator/kube/limit.h"

void limit_init(struct limit *l, uint32_t qps, uint32_t burst, uint64_t now_ns)
{
    l->interval_ns = 1000000000ull / (qps ? qps : 1);
    l->burst_ns = l->interval_ns * ((burst ? burst : 1) - 1u);
    l->next_ns = now_ns > l->burst_ns ? now_ns - l->burst_ns : 0;
}

bool limit_take(struct limit *l, uint64_t now_ns)
{
    if (l->next_ns > now_ns)
        return false;
    if (l->next_ns + l->burst_ns < now_ns)
        l->next_ns = now_ns - l->burst_ns;
    l->next_ns += l->interval_ns;
    return true;
}

uint64_t limit_ready_ns(const struct limit *l)
{
    return l->next_ns;
}

void limit_pause(struct limit *l, uint64_t until_ns)
{
    if (until_ns > l->next_ns)
        l->next_ns = until_ns;
}
