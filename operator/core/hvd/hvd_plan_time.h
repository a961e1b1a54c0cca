/* SPDX-License-Identifier: Apache-2.0 */
/* What hvd_plan.c needs to know of times. Pure. */
#ifndef OPERATOR_CORE_HVD_HVD_PLAN_TIME_H
#define OPERATOR_CORE_HVD_HVD_PLAN_TIME_H

#include "operator/core/hvd/hvd_plan.h"

#define END_S   30
#define LEAVE_S 90 /* until a changed annotation is visible in a container */

/* A finished job: when its remaining pods are stopped or deleted. */
uint64_t plan_stop_s(const struct verdict_query *q, const struct hvd_verdict *v);
/* When surplus pods that run are deleted; 0: at once. */
uint64_t plan_leave_s(const struct verdict_query *q, const struct hvd_verdict *v);
/* Worker i is surplus, or was patched with a world that does not contain it. */
bool plan_is_outside(const struct verdict_query *q, uint32_t i);
/* Pod i of this role of an elastic job has ended and is to be replaced. */
bool plan_has_ended(const struct verdict_query *q,
                    const struct hvd_verdict *v,
                    enum role role,
                    uint32_t i);
/* Pod i of this role of an elastic job is deleted by force at *ret_s. */
bool plan_is_forced(const struct verdict_query *q,
                    enum role role,
                    uint32_t i,
                    uint64_t *ret_s);
/* The pod of the launcher of an elastic job that runs, in deletion, may still end by
 * itself, until *ret_s at most. */
bool plan_may_end(const struct verdict_query *q,
                  const struct hvd_verdict *v,
                  const struct pod *p,
                  uint64_t *ret_s);

#endif
