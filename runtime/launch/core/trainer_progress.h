/* SPDX-License-Identifier: Apache-2.0 */
/* Progress from the reports of Kubeflow's trainers (trainer_json.h). Pure. */
#ifndef RUNTIME_LAUNCH_CORE_TRAINER_PROGRESS_H
#define RUNTIME_LAUNCH_CORE_TRAINER_PROGRESS_H

#include "runtime/live/live_report.h"

enum { TRAINER_METRICS_MAX = 256 }; /* of one report */

struct trainer_report { /* negative: not given */
    int percent;        /* 0 to 100 */
    double current_step, total_steps,
        current_epoch; /* of the metrics with these names */
    bool has_metrics;
    struct live_metric metrics[LIVE_METRICS_MAX]; /* the first other ones */
    uint32_t n_metrics;
};
void trainer_report_init(struct trainer_report *r); /* nothing given */
/* A metric of the report. A name beyond LIVE_METRICS_MAX is left out. */
void trainer_report_add(struct trainer_report *r, const char *name, double value);

/* p: at first as of live_progress_init. step: current_step, else the share of total_steps; without total_steps in any report the
 * percentage, of 100. epoch: the one that current_epoch is in, from 1. */
void trainer_progress_update(struct live_progress *p,
                             const struct trainer_report *r,
                             uint64_t now_wall_us);

#endif
