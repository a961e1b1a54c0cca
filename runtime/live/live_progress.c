/* SPDX-License-Identifier: Apache-2.0 */
/* Called by live_report.c and live_worker.c. */
#include "runtime/live/live_progress.h"

#include <stddef.h>
#include <string.h>

#define AT(field) offsetof(struct live_progress, field)

const struct live_field live_progress_fields[LIVE_PROGRESS_FIELDS] = {
    {"step", LIVE_I64, AT(step), 0, 0},
    {"totalSteps", LIVE_I64, AT(total_steps), 0, 0},
    {"epoch", LIVE_I64, AT(epoch), 0, 0},
    {"totalEpochs", LIVE_I64, AT(total_epochs), 0, 0},
    {"samples", LIVE_I64, AT(samples), 0, 0},
    {"samplesPerSecond", LIVE_F64, AT(samples_per_s), 0, 0},
    {"updated", LIVE_TIME, AT(updated_wall_us), 0, 0},
    {"committed", LIVE_TIME, AT(commit_wall_us), 0, 0},
    {"committedStep", LIVE_I64, AT(commit_step), 0, 0},
    {"metrics", LIVE_METRICS, AT(metrics), 0, AT(n_metrics)},
};

void live_progress_init(struct live_progress *p)
{
    memset(p, 0, sizeof(*p));
    p->step = p->total_steps = p->epoch = p->total_epochs = p->samples = -1;
    p->commit_step = -1;
    p->samples_per_s = -1;
}
