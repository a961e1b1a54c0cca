/* SPDX-License-Identifier: Apache-2.0 */
/* Why a HorovodJob does not run (core/why.h), and what is requested to know it. Pure. */
#ifndef OPERATOR_CORE_HVD_HVD_WHY_H
#define OPERATOR_CORE_HVD_HVD_WHY_H

#include "operator/core/hvd/hvd_verdict.h"
#include "operator/core/plan.h"

/* While the state is PENDING. -ENOMEM. */
int hvd_why(const struct verdict_query *q,
            uint32_t n_pods,
            uint32_t n_running,
            struct arena *a,
            struct why *ret);
#define HVD_WHY_ACTIONS 2 /* at most */
/* Adds what is due: Events of a pod, then the PodGroup or the Workload. -ENOMEM. */
int hvd_why_plan(const struct verdict_query *q,
                 const struct hvd_verdict *v,
                 uint32_t stage,
                 struct arena *a,
                 struct job_plan *plan);
/* The wall time when something is due next; 0: nothing will be. */
uint64_t hvd_why_next_s(const struct verdict_query *q, const struct hvd_verdict *v);

#endif
