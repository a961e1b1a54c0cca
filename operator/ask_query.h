/* SPDX-License-Identifier: Apache-2.0 */
/* Questions to agents beside the scheduled ones of ask.c, for the status page. Only ask.c
 * calls these functions; others use ask_query() of ask.h. One thread; nothing blocks. */
#ifndef OPERATOR_ASK_QUERY_H
#define OPERATOR_ASK_QUERY_H

#include "operator/ask.h"

#define ASK_QUERIES_MAX       8u
#define ASK_QUERY_DEADLINE_NS (5 * NS_PER_S) /* with the read of the token */

/* Where a job's agent is. The strings must last until ask_desk_end(job). */
struct ask_place {
    const void *job; /* identifies it */
    const char *ns, *uid, *secret, *address, *job_id;
    uint16_t port;
    const struct token *token; /* NULL: it is read */
};

struct ask_desk;
/* The connections are added to that epoll descriptor, with a NULL pointer. NULL: out of
 * memory. */
struct ask_desk *ask_desk_new(struct kube *kube, int epoll_fd);
void ask_desk_free(struct ask_desk *d); /* after kube_free; calls no one back */

void ask_desk_open(struct ask_desk *d,
                   const struct ask_place *at,
                   const struct live_query *q,
                   ask_answer_fn fn,
                   void *arg);
/* Ends the job's questions with that code. Accepts a NULL desk. */
void ask_desk_end(struct ask_desk *d, const void *job, int rc, const char *why);
void ask_desk_cancel(struct ask_desk *d, const void *arg);
void ask_desk_run(struct ask_desk *d, uint64_t now_ns);
uint64_t ask_desk_next_ns(const struct ask_desk *d);

#endif
