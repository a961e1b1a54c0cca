/* SPDX-License-Identifier: Apache-2.0 */
/* Requests the PodGroup or the Workload of a job that waits, and stores what it says
 * (core/inquiry.h). */
#ifndef OPERATOR_INQUIRE_H
#define OPERATOR_INQUIRE_H

#include "operator/controller.h"

/* Strings and arena must last until done is called, which may be before the function
 * returns. A failure only delays the next request. name: of the PodGroup. */
typedef void (*inquire_done_fn)(void *arg);
void inquire_request(struct controller *op,
                     const char *key,
                     const struct job_meta *job,
                     enum kube_kind kind,
                     const char *name,
                     struct arena *a,
                     inquire_done_fn done,
                     void *arg);

#endif
