/* SPDX-License-Identifier: Apache-2.0 */
/* Executes a plan: stage after stage, the actions of a stage in parallel. */
#ifndef OPERATOR_APPLY_H
#define OPERATOR_APPLY_H

#include "operator/controller.h"

struct apply;
typedef void (*apply_done_fn)(void *arg, const struct sync_outcome *outcome);

/* Starts the plan. done is called exactly once, possibly before this function returns.
 * job, plan and arena must be valid until then; all memory is from the arena. After the
 * first failure no more actions are started. Every object that the API server confirms
 * is recorded in the store. */
void apply_start(struct controller *op,
                 const char *key,
                 const struct job_meta *job,
                 const struct job_plan *plan,
                 struct arena *arena,
                 apply_done_fn done,
                 void *arg);

#endif
