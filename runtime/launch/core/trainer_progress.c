/* SPDX-License-Identifier: Apache-2.0 */
/* Transformers' callback gives steps and epochs among its metrics, but not in its first
 * and last report; Kubeflow's SDK gives a percentage only. Called by trainer.c. */
#include "runtime/launch/core/trainer_progress.h"

#include <string.h>

#include "runtime/base/utf8.h"

enum { PERCENT = 100 };

void trainer_report_init(struct trainer_report *r)
{
    memset(r, 0, sizeof(*r));
    r->percent = -1;
    r->current_step = r->total_steps = r->current_epoch = -1;
}

void trainer_report_add(struct trainer_report *r, const char *name, double value)
{
    static const struct {
        const char *name;
        size_t at;
    } known[] = {{"current_step", offsetof(struct trainer_report, current_step)},
                 {"total_steps", offsetof(struct trainer_report, total_steps)},
                 {"current_epoch", offsetof(struct trainer_report, current_epoch)}};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(name, known[i].name) == 0) {
            memcpy((char *)r + known[i].at, &value, sizeof(value));
            return;
        }
    if (!*name || r->n_metrics == LIVE_METRICS_MAX)
        return;
    utf8_clean(name, r->metrics[r->n_metrics].name, LIVE_NAME_MAX);
    r->metrics[r->n_metrics++].value = value;
}

/* What a double holds exactly; NaN is none. */
static bool is_count(double v)
{
    return v >= 0 && v < 9007199254740992.0;
}

/* 1.5 epochs were trained: it is the second one. Rounded up, but 0 is the first one too. */
static int64_t epoch_of(double trained)
{
    int64_t n = (int64_t)trained;

    return (double)n < trained || n == 0 ? n + 1 : n;
}

void trainer_progress_update(struct live_progress *p,
                             const struct trainer_report *r,
                             uint64_t now_wall_us)
{
    if (is_count(r->total_steps) && r->total_steps > 0)
        p->total_steps = (int64_t)r->total_steps;
    else if (r->percent >= 0 && p->total_steps < 0 && !is_count(r->current_step))
        p->total_steps = PERCENT;
    if (is_count(r->current_step))
        p->step = (int64_t)r->current_step;
    else if (r->percent >= 0 && p->total_steps > 0)
        p->step = p->total_steps * r->percent / PERCENT; /* fits, as is_count says */
    if (is_count(r->current_epoch))
        p->epoch = epoch_of(r->current_epoch);
    if (r->has_metrics) {
        memcpy(p->metrics, r->metrics, sizeof(p->metrics));
        p->n_metrics = r->n_metrics;
    }
    p->updated_wall_us = now_wall_us;
}
