/* SPDX-License-Identifier: Apache-2.0 */
/* The bucket as a virtual clock: next_ns advances by one interval per request and never
 * lags more than the burst behind now. No counter, no refill timer, no drift.
 *
 * 429 halves the rate, drops the saved burst, and pauses. Further 429 answers during a
 * pause do not halve it again: they belong to requests that were sent before. Each 10 s
 * without 429 double the rate until it is the configured one. */
#include "operator/kube/limit.h"

#define NS_PER_S  1000000000ull
#define FASTER_NS (10 * NS_PER_S)

static uint64_t limit_interval_ns(const struct limit *l)
{
    return l->interval_ns << l->slow;
}

void limit_init(struct limit *l, uint32_t qps, uint32_t burst, uint64_t now_ns)
{
    *l = (struct limit){.interval_ns = NS_PER_S / (qps ? qps : 1)};
    l->burst_ns = l->interval_ns * ((burst ? burst : 1) - 1u);
    l->next_ns = now_ns > l->burst_ns ? now_ns - l->burst_ns : 0;
}

bool limit_take(struct limit *l, uint64_t now_ns)
{
    uint64_t burst_ns = l->slow ? 0 : l->burst_ns;

    if (l->next_ns > now_ns)
        return false;
    while (l->slow && now_ns >= l->paused_ns && now_ns - l->changed_ns >= FASTER_NS) {
        l->slow--;
        l->changed_ns += FASTER_NS;
    }
    if (l->next_ns + burst_ns < now_ns)
        l->next_ns = now_ns - burst_ns;
    l->next_ns += limit_interval_ns(l);
    return true;
}

uint64_t limit_ready_ns(const struct limit *l)
{
    return l->next_ns;
}

void limit_throttled(struct limit *l, uint64_t now_ns, uint32_t after_s)
{
    bool is_news = now_ns >= l->paused_ns;
    uint64_t until_ns;

    if (after_s == 0)
        after_s = 1u << l->slow;
    if (after_s > LIMIT_MAX_PAUSE_S)
        after_s = LIMIT_MAX_PAUSE_S;
    until_ns = now_ns + after_s * NS_PER_S;
    if (is_news && l->slow < LIMIT_MAX_SLOW)
        l->slow++;
    if (until_ns > l->paused_ns)
        l->paused_ns = until_ns;
    l->changed_ns = l->paused_ns;
    if (l->paused_ns > l->next_ns)
        l->next_ns = l->paused_ns;
}
