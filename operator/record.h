/* SPDX-License-Identifier: Apache-2.0 */
/* Kubernetes Events about a job, each reported once. Names are derived from the job and
 * the text: after a restart the event already exists, and a repeated warning raises its
 * count. */
#ifndef OPERATOR_RECORD_H
#define OPERATOR_RECORD_H

#include "operator/core/front.h"
#include "operator/kube/client.h"

struct event_recorder;
typedef void (*record_done_fn)(void *arg);

struct event_recorder *record_new(struct kube *kube);
void record_free(struct event_recorder *r); /* after kube_free */
/* component: the source of the event. done is called exactly once, possibly before this
 * function returns, whether or not the event was accepted. A failure is only logged. */
void record_event(struct event_recorder *r,
                  const struct job_meta *job,
                  const char *component,
                  const struct event_note *note,
                  record_done_fn done,
                  void *arg);

#endif
