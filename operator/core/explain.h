/* SPDX-License-Identifier: Apache-2.0 */
/* Why a pod does not start, when its status does not say so: a missing ConfigMap or Secret,
 * a volume that cannot be attached, a network that cannot be set up. The kubelet reports
 * these in Events of the pod only, and repeats them while they last. They are requested when
 * a pod that is bound to a node has not started for a while, one pod per job. Pure. */
#ifndef OPERATOR_CORE_EXPLAIN_H
#define OPERATOR_CORE_EXPLAIN_H

#include "operator/core/observed.h"
#include "operator/core/plan.h"

#define EXPLAIN_AFTER_S  20u  /* since the pod was bound */
#define EXPLAIN_AGAIN_S  30u  /* between two requests of a job */
#define EXPLAIN_RECENT_S 180u /* older Events may be of a problem that is over */
#define EXPLAIN_TEXT_MAX 512

bool pod_is_unscheduled(const struct pod *p); /* its condition PodScheduled is False */

/* Adds a VERB_EXPLAIN for the pod whose turn it is, if it is due. -ENOMEM. */
int explain_add(struct job_plan *plan,
                const struct observed *seen,
                uint64_t now_s,
                uint32_t stage,
                struct arena *a);
/* The wall time when Events are due next; 0: never. */
uint64_t explain_next_s(const struct observed *seen);

/* The message of the latest Event of a list that is recent and not the scheduler's, one
 * line of at most EXPLAIN_TEXT_MAX bytes; "" if there is none. */
void explain_read(const struct node *list,
                  uint64_t now_s,
                  char ret[EXPLAIN_TEXT_MAX + 1]);

#endif
