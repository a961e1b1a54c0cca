/* SPDX-License-Identifier: Apache-2.0 */
/* Carries out VERB_EXPLAIN: requests the Events of a pod (pod_events.h), or the PodGroup or
 * the Workload of a job that waits, and stores what it says (core/inquiry.h). */
#ifndef OPERATOR_INQUIRE_H
#define OPERATOR_INQUIRE_H

#include "operator/controller.h"

/* Strings and arena must last until done is called, which may be before the function
 * returns. A failure only delays the next request. */
typedef void (*inquire_done_fn)(void *arg);
void inquire_request(struct controller *op,
                     const char *key,
                     const struct job_meta *job,
                     const struct action *x,
                     struct arena *a,
                     inquire_done_fn done,
                     void *arg);

#endif
