/* SPDX-License-Identifier: Apache-2.0 */
/* Removal of FINALIZER_TRACKING (hvd_crew.h) from pods whose end no longer matters. Pure.
 */
#ifndef OPERATOR_CORE_RELEASE_H
#define OPERATOR_CORE_RELEASE_H

#include "operator/core/plan.h"
#include "operator/core/store.h"

/* The patch of a pod: a strategic merge patch, which leaves other finalizers. */
struct node *release_patch(struct build *b);

/* The plan for pods that no job keeps: they are in deletion, and their job, as the watch
 * shows it, is in deletion too, absent, or a newer one of the same name. job: NULL if
 * absent. ret_meta: what apply_start requires; it borrows key's copy in the arena.
 * ret->n is 0 if there is none. -ENOMEM. */
int release_make_plan(const struct store *s,
                      const char *key,
                      const struct job_meta *job,
                      struct arena *a,
                      struct job_meta *ret_meta,
                      struct job_plan *ret);

#endif
