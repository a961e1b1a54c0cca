/* SPDX-License-Identifier: Apache-2.0 */
/* Is mpi-operator at work, too? Where it is, both act on each MPIJob without managedBy.
 * One thread. */
#ifndef OPERATOR_RIVAL_H
#define OPERATOR_RIVAL_H

#include <stdbool.h>
#include <stdint.h>

#include "operator/kube/client.h"

struct rival;
/* ns: of its Lease. step_ms: from the first look to the second; later ones are six
 * times as far apart. */
int rival_new(struct kube *kube, const char *ns, uint64_t step_ms, struct rival **ret);
void rival_free(struct rival *r); /* after kube_free; accepts NULL */
/* We have become the leader, or are it no more: what was seen before says nothing. */
void rival_forget(struct rival *r);
void rival_tick(struct rival *r, uint64_t now_ns);
uint64_t rival_next_ns(const struct rival *r);
bool rival_is_alive(const struct rival *r);

#endif
