/* SPDX-License-Identifier: Apache-2.0 */
/* Requests the Warning Events of a pod and stores what the latest says (core/explain.h). */
#ifndef OPERATOR_POD_EVENTS_H
#define OPERATOR_POD_EVENTS_H

#include "operator/controller.h"

/* Strings and arena must last until done is called. A failure changes nothing: the pod is
 * explained later. done may be called before the function returns. */
typedef void (*pod_events_done_fn)(void *arg);
void pod_events_request(struct controller *op,
                        const char *ns,
                        const char *pod,
                        const char *uid,
                        struct arena *a,
                        pod_events_done_fn done,
                        void *arg);

#endif
