/* SPDX-License-Identifier: Apache-2.0 */
/* Removal of FINALIZER_TRACKING (hvd_crew.h) from pods whose end no longer matters. Pure.
 */
#ifndef OPERATOR_CORE_RELEASE_H
#define OPERATOR_CORE_RELEASE_H

#include "operator/core/plan.h"
#include "operator/core/store/store.h"

/* Adds the action for the pod of that seat; there must be room in the plan. The patch
 * leaves other finalizers. -ENOMEM. */
int release_add_pod(struct job_plan *plan,
                    struct arena *a,
                    const struct pod *p,
                    enum role role,
                    uint32_t index);

/* The plan for pods that no job keeps: they are in deletion, and their job, as the watch
 * shows it, is in deletion too (as is an absent one), or a newer one of the same name.
 * ret->n is 0 if there is none. -ENOMEM. */
int release_make_plan(const struct store *s,
                      const struct job_meta *job,
                      struct arena *a,
                      struct job_plan *ret);

#endif
