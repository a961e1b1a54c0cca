/* SPDX-License-Identifier: Apache-2.0 */
/* The watches of the operator: their list, and how their events change the store and
 * the queue. */
#ifndef OPERATOR_SINKS_H
#define OPERATOR_SINKS_H

#include "operator/controller.h"
#include "operator/options.h"

int sinks_open(struct controller *op, const struct operator_options *o); /* -ENOMEM */
void sinks_close(struct controller *op); /* after kube_free */
/* Without a controller: sets the kind, the namespace and the form of the list that this
 * watch begins with. False: the operator does not watch it with these options. */
bool sinks_has_list(const struct operator_options *o,
                    enum watch_id i,
                    struct kube_request *ret);
void sinks_tick(struct controller *op,
                uint64_t now_ns); /* starts due lists and watches */
/* The caches may lag behind another leader's writes: controller_may_act is false until
 * everything has been listed again. */
void sinks_relist(struct controller *op);
uint64_t sinks_next_ns(const struct controller *op);
/* Of the watches that the operator requires in order to act, those of kinds that the
 * cluster has: each has listed its objects once; and since sinks_relist. */
bool sinks_are_listed(const struct controller *op);
bool sinks_are_fresh(const struct controller *op);
bool sinks_know_jobs(const struct controller *op); /* the cluster has a kind of job */

/* Over all watches, for metrics and /readyz. */
uint64_t sinks_n_restarts(const struct controller *op);
uint64_t sinks_n_events(const struct controller *op);
/* The oldest of the times at which the watches last received an event, without kinds
 * that the cluster does not know; 0: one of them has not received any. */
uint64_t sinks_received_ns(const struct controller *op);
const char *sinks_trouble(const struct controller *op); /* "" if there is none */

#endif
