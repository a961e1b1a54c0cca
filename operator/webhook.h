/* SPDX-License-Identifier: Apache-2.0 */
/* Sends a signed message to the administrator's receiver for each change of a job's state.
 * Every function but webhook_new accepts NULL: no webhook. */
#ifndef OPERATOR_WEBHOOK_H
#define OPERATOR_WEBHOOK_H

#include "operator/controller.h"

struct webhook;
/* dir has the files url and secret, and ca.crt if the receiver's certificate is not of a CA
 * of the system. They are read again for each attempt. op->kube exists. An error names the
 * file, not what it has. */
int webhook_new(struct controller *op,
                const char *dir,
                struct webhook **ret,
                struct err *err);
void webhook_free(struct webhook *w); /* after kube_free */

/* The status of job is being written, as d says. If that changes the job's state, a message
 * waits for webhook_confirm. Out of memory it is logged and left out. */
void webhook_hold(struct webhook *w,
                  const struct job_meta *job,
                  const struct node *status,
                  const struct decision *d,
                  struct arena *a);
/* The API server has this status of the job. */
void webhook_confirm(struct webhook *w, const char *uid, const struct node *status);
/* Drops all messages: another process leads. */
void webhook_forget_all(struct webhook *w);

void webhook_tick(struct webhook *w, uint64_t now_ns); /* starts what is due */
uint64_t webhook_next_ns(const struct webhook *w);
size_t webhook_depth(const struct webhook *w); /* messages in the queue */

#endif
