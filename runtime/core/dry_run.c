/* SPDX-License-Identifier: Apache-2.0 */
/* The step decides the phase, not a clock: otherwise one rank would communicate while
 * another one skips it. A round that a left plan did not complete is no step; its batches
 * are counted on all ranks alike. Called by engine/carry.c and observe/observe.c. */
#include "runtime/core/dry_run.h"

#include <stdlib.h>
#include <string.h>

static bool step_is_dry(uint64_t step)
{
    return step / DRY_RUN_PHASE % 2 == 1;
}

bool dry_run_next(struct dry_run *d, uint64_t plan, uint32_t n_plan, size_t n_tensors)
{
    bool is_dry = step_is_dry(d->n_steps);

    if (plan != d->plan)
        d->n_tensors = 0;
    d->plan = plan;
    d->n_tensors += n_tensors;
    if (d->n_tensors >= n_plan) {
        d->n_tensors -= n_plan;
        d->n_steps++;
    }
    return is_dry;
}

void dry_run_measure(struct dry_run *d, uint64_t ns)
{
    uint64_t step = d->n_steps - 1;
    struct dry_run_times *t = &d->times[step_is_dry(step)];

    if (d->n_steps == 0 || step % DRY_RUN_PHASE < DRY_RUN_IGNORED)
        return;
    t->ns[t->n++ % DRY_RUN_KEPT] = ns;
}

static int ns_compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static uint64_t times_median(const struct dry_run_times *t)
{
    uint64_t ns[DRY_RUN_KEPT];
    size_t n = t->n < DRY_RUN_KEPT ? (size_t)t->n : DRY_RUN_KEPT;

    if (n == 0)
        return 0;
    memcpy(ns, t->ns, n * sizeof(*ns));
    qsort(ns, n, sizeof(*ns), ns_compare);
    return n % 2 ? ns[n / 2] : ns[n / 2 - 1] / 2 + ns[n / 2] / 2;
}

struct dry_run_result dry_run_result(const struct dry_run *d)
{
    return (struct dry_run_result){.with_ns = times_median(&d->times[0]),
                                   .without_ns = times_median(&d->times[1]),
                                   .n_with = d->times[0].n,
                                   .n_without = d->times[1].n};
}
