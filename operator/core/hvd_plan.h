/* SPDX-License-Identifier: Apache-2.0 */
/* What to do next for a HorovodJob. Pure. */
#ifndef OPERATOR_CORE_HVD_PLAN_H
#define OPERATOR_CORE_HVD_PLAN_H

#include "operator/core/hvd_verdict.h"
#include "operator/core/plan.h"

/* When to look again though nothing happens: while a pod is expected; 0: need not. */
uint64_t hvd_plan_requeue_ms(const struct observed *seen, const struct verdict *v);

/* -ENOMEM when the arena is out. */
int hvd_plan_make(const struct hvd_job *job,
                  const struct observed *seen,
                  const struct verdict *v,
                  struct arena *a,
                  struct plan *ret);

#endif
