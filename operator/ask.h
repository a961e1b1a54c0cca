/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the agents of running jobs for their live reports, and keeps the last one of each
 * (core/ask_plan.h: when). In the operator's thread; no function blocks. Only the leader
 * has jobs here. */
#ifndef OPERATOR_ASK_H
#define OPERATOR_ASK_H

#include "operator/controller.h"
#include "runtime/live/live_ask.h"

struct asker;

/* -ENOMEM, or the errno of epoll. */
int ask_new(struct controller *op,
            const struct operator_options *o,
            struct asker **ret,
            struct err *err);
void ask_free(struct asker *a); /* after kube_free; accepts NULL */

/* The job of that key was synced: where to ask it. Without an address, and when another
 * pod is to be asked, its report and token are dropped. */
void ask_set(struct asker *a,
             const char *key,
             const struct job_meta *job,
             const struct ask_target *target);
void ask_forget_all(struct asker *a);
/* The job's report in the arena, and when it was received; NULL: unknown, or out of
 * memory. */
const struct live_report *ask_peek(const struct asker *a,
                                   const char *key,
                                   struct arena *arena,
                                   uint64_t *ret_wall_s);
/* The same for a sync, which writes it into the status: see ask_show. */
const struct live_report *
ask_report(struct asker *a, const char *key, struct arena *arena, uint64_t *ret_wall_s);

/* True if the status of that job may be written for its progress alone. */
bool ask_may_write(const struct asker *a, const char *key);
/* The report that was read last is in the job's status. */
void ask_show(struct asker *a, const char *key);

/* One more question to the job's agent. Calls fn exactly once, possibly before it returns:
 * rc 0 and the answer, valid during the call; or a negative errno and one sentence.
 * -ENOENT: the job has no agent that can be asked, or ceased to have one; -EAGAIN: too many
 * such questions are open; -EPERM: this operator no longer leads; -ETIMEDOUT; -EIO: the
 * agent, or the job's Secret, could not be read. */
typedef void (*ask_answer_fn)(
    void *arg, int rc, const void *p, size_t n, const char *why);
void ask_query(struct asker *a,
               const char *key,
               const struct live_query *q,
               ask_answer_fn fn,
               void *arg);
void ask_query_cancel(struct asker *a, const void *arg); /* calls fn no more */

int ask_fd(const struct asker *a);               /* to be polled for POLLIN */
void ask_tick(struct asker *a, uint64_t now_ns); /* asks the jobs whose turn it is */
void ask_run(struct asker *a, uint64_t now_ns);  /* takes answers */
uint64_t ask_next_ns(const struct asker *a);     /* when one of these has work */

/* For metrics: counts, and each job with a report that is not stale. */
void ask_count(const struct asker *a, struct ask_gauges *ret);
typedef void (*ask_each_fn)(void *arg, const char *key, const struct live_report *r);
void ask_each(const struct asker *a, ask_each_fn fn, void *arg);

#endif
