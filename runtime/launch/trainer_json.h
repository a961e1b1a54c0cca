/* SPDX-License-Identifier: Apache-2.0 */
/* The body of a report to the status server of Kubeflow's trainer:
 *
 *   {"trainerStatus": {"progressPercentage": 40, "estimatedRemainingSeconds": 90,
 *                      "lastUpdatedTime": "2026-11-29T12:00:00+00:00",
 *                      "metrics": [{"name": "loss", "value": "0.25"}]}}
 *
 * All members but the outer one may be absent, and others are ignored, as are metrics
 * whose value is not a number. */
#ifndef RUNTIME_LAUNCH_TRAINER_JSON_H
#define RUNTIME_LAUNCH_TRAINER_JSON_H

#include "runtime/launch/core/trainer_progress.h"

/* -EINVAL with one sentence about the body; -ENOMEM. */
int trainer_json_read(const char *p,
                      size_t n,
                      struct trainer_report *ret,
                      struct err *err);

#endif
