/* SPDX-License-Identifier: Apache-2.0 */
/* Called by the agent, for each of its ranks, every LIVE_EVERY_S seconds. */
#include "runtime/live/live_page.h"

#include <string.h>

#include "runtime/base/utf8.h"

_Static_assert(LIVE_METRICS_MAX >= STATS_METRICS_MAX, "all metrics have room");
_Static_assert(LIVE_NAME_MAX >= STATS_NAME_MAX, "their names too");

static int64_t known(int64_t v)
{
    return v < 0 ? -1 : v;
}

static void progress_fill(const struct stats_page *page, struct live_progress *ret)
{
    struct stats_progress p;

    stats_page_get_progress(page, &p);
    memset(ret, 0, sizeof(*ret));
    ret->step = known(p.step);
    ret->total_steps = known(p.total_steps);
    ret->epoch = known(p.epoch);
    ret->total_epochs = known(p.total_epochs);
    ret->samples = known(p.samples);
    ret->samples_per_s = -1;
    ret->updated_wall_us = p.updated_wall_us;
    ret->commit_wall_us = p.commit_wall_us;
    ret->commit_step = known(p.commit_step);
    for (; ret->n_metrics < p.n_metrics; ret->n_metrics++) {
        struct live_metric *m = &ret->metrics[ret->n_metrics];

        utf8_clean(p.metrics[ret->n_metrics].name, m->name, sizeof(m->name));
        m->value = p.metrics[ret->n_metrics].value;
    }
}

void live_page_fill(const struct stats_page *page,
                    uint64_t now_wall_us,
                    struct live_rank *ret)
{
    uint64_t stall_ns;

    ret->rank = page->rank;
    ret->pid = page->pid;
    ret->age_ms = now_wall_us > page->begin_wall_us
                      ? (now_wall_us - page->begin_wall_us) / 1000
                      : 0;
    ret->steps = stats_word(page, STATS_STEPS);
    ret->step_ns = stats_word(page, STATS_STEP_NS);
    ret->blocked_ns = stats_word(page, STATS_BLOCKED_NS);
    ret->bus_bytes = stats_word(page, STATS_BUS_BYTES);
    ret->allreduce_ns = stats_word(page, STATS_ALLREDUCE_NS);
    ret->ready_ns = stats_word(page, STATS_READY_NS);
    ret->n_batches = stats_word(page, STATS_BATCHES);
    stall_ns = stats_word(page, STATS_STALL_NS);
    ret->stall_ms = stall_ns > 0 ? (int64_t)(stall_ns / 1000000u) : -1;
    ret->waits_us = stats_word(page, STATS_WAITS_NS) / 1000u;
    progress_fill(page, &ret->progress);
}
