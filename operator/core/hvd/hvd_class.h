/* SPDX-License-Identifier: Apache-2.0 */
/* The consequence of a cause: fail, restart, or restart without counting. Pure. */
#ifndef OPERATOR_CORE_HVD_HVD_CLASS_H
#define OPERATOR_CORE_HVD_HVD_CLASS_H

#include "operator/core/hvd/hvd_cause.h"

/* The action of the first of the job's failureRules that matches, else the default. */
enum rule_action cause_class(const struct hvd_job *job, const struct cause *c);

/* True for a status.reason of a pod that Kubernetes ended for the cluster's needs. */
bool reason_is_outside(const char *reason);
/* True for a status.reason of a pod that Kubernetes ended for the pod's own usage or
 * deadline. The condition DisruptionTarget overrides it. */
bool reason_is_own(const char *reason);
/* True for the reason of a container's exit that its kubelet has not seen: the node or the
 * container runtime was restarted, for one. */
bool exit_is_unseen(const char *exit_reason);

/* Seconds before the n-th restart that counts, n >= 1; at most MAX_BACKOFF_S. */
uint64_t restart_backoff_s(uint32_t n);
#define MAX_BACKOFF_S   360u
#define REPLACE_APART_S 10 /* between restarts that do not count */

#endif
