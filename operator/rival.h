/* SPDX-License-Identifier: Apache-2.0 */
/* Detects a running mpi-operator. If there is one, both operators act on each MPIJob
 * without managedBy. One thread. */
#ifndef OPERATOR_RIVAL_H
#define OPERATOR_RIVAL_H

#include <stdbool.h>
#include <stdint.h>

#include "operator/kube/client.h"

struct rival;
/* ns: the namespace of its Lease. step_ms: the time between the first two checks; later
 * intervals are six times as long. */
int rival_new(struct kube *kube, const char *ns, uint64_t step_ms, struct rival **ret);
void rival_free(struct rival *r); /* after kube_free; accepts NULL */
/* Leadership has started or ended: discards the earlier observations. */
void rival_forget(struct rival *r);
void rival_tick(struct rival *r, uint64_t now_ns);
uint64_t rival_next_ns(const struct rival *r);
bool rival_is_alive(const struct rival *r);

#endif
