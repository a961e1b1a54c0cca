/* SPDX-License-Identifier: Apache-2.0 */
/* The watches of the operator: which there are, and what their news do to the store and
 * the queue. */
#ifndef OPERATOR_SINKS_H
#define OPERATOR_SINKS_H

#include "operator/controller.h"
#include "operator/options.h"

int sinks_open(struct controller *op, const struct operator_options *o); /* -ENOMEM */
void sinks_close(struct controller *op);                 /* after kube_free */
void sinks_tick(struct controller *op, uint64_t now_ns); /* starts what is due */
/* What is cached may be behind what others wrote: controller_may_act waits until all
 * has been listed anew. */
void sinks_relist(struct controller *op);
uint64_t sinks_next_ns(const struct controller *op);

/* Over all watches, for metrics and /readyz. */
uint64_t sinks_n_restarts(const struct controller *op);
uint64_t sinks_n_events(const struct controller *op);
/* When the quietest was last heard, those of kinds that the cluster does not know left
 * out; 0: one of them never. */
uint64_t sinks_received_ns(const struct controller *op);
const char *sinks_trouble(const struct controller *op); /* "" when well */

#endif
