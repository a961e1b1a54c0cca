/* SPDX-License-Identifier: Apache-2.0 */
/* What follows from a cause: fail, restart, or restart without counting. Pure. */
#ifndef OPERATOR_CORE_HVD_CLASS_H
#define OPERATOR_CORE_HVD_CLASS_H

#include "operator/core/hvd_cause.h"

/* By the first of the job's rules that matches, else by default. */
enum rule_action cause_class(const struct hvd_job *job, const struct cause *c);

/* A pod's status.reason by which Kubernetes tells that it ended the pod for its own
 * needs. */
bool reason_is_outside(const char *reason);
/* One by which it ended the pod for what the pod itself used or for its own deadline,
 * unless the condition DisruptionTarget says otherwise. */
bool reason_is_own(const char *reason);

/* Seconds before the n-th restart that counts, n >= 1. */
uint64_t restart_backoff_s(uint32_t n);
#define REPLACE_APART_S 10 /* restarts that do not count are so far apart */

#endif
