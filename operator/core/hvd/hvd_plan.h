/* SPDX-License-Identifier: Apache-2.0 */
/* What to do next for a HorovodJob. Pure. */
#ifndef OPERATOR_CORE_HVD_HVD_PLAN_H
#define OPERATOR_CORE_HVD_HVD_PLAN_H

#include "operator/core/hvd/hvd_verdict.h"
#include "operator/core/plan.h"

/* The time until the next sync if there is no event before; 0: no limit. */
uint64_t hvd_plan_requeue_ms(const struct verdict_query *q,
                             const struct hvd_verdict *v);

/* True if ttlSecondsAfterFinished has passed. */
bool hvd_plan_is_ttl_over(const struct verdict_query *q, const struct hvd_verdict *v);

/* -ENOMEM. */
int hvd_plan_make(const struct verdict_query *q,
                  const struct hvd_verdict *v,
                  struct arena *a,
                  struct job_plan *ret);

#endif
