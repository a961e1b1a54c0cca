/* SPDX-License-Identifier: Apache-2.0 */
/* Asks worker 0's agent one query (live_query.h). Never blocks: the caller polls
 * live_ask_fd() for live_ask_events() and calls live_ask_step(). One thread. */
#ifndef RUNTIME_LIVE_LIVE_ASK_H
#define RUNTIME_LIVE_LIVE_ASK_H

#include "runtime/live/live_query.h"
#include "runtime/wire/auth.h"

struct live_query {
    enum live_query_kind kind;
    uint32_t first, max; /* of QUERY_RANKS; else 0 */
};

struct live_ask;
/* address: numeric, IPv4 or IPv6. id: token and job; copied (the token is wiped by
 * live_ask_free). deadline_ns: of everything, monotonic. 0, -errno with err. */
int live_ask_start(const char *address,
                   uint16_t port,
                   const struct auth_id *id,
                   const struct live_query *q,
                   uint64_t deadline_ns,
                   struct live_ask **ret,
                   struct err *err);
int live_ask_fd(const struct live_ask *a);
short live_ask_events(const struct live_ask *a);
/* Advances. 0: not finished; 1: the answer is complete; negative, with err: it failed:
 * -EACCES: wrong token; -EPROTO: other job or not our protocol; -ETIMEDOUT; -errno;
 * or what the agent answered. */
int live_ask_step(struct live_ask *a, uint64_t now_ns, struct err *err);
/* After 1: valid until live_ask_free. */
const void *live_ask_answer(const struct live_ask *a, size_t *ret_n);
void live_ask_free(struct live_ask *a); /* accepts NULL */

/* The same for a program that may block. *ret_answer is the caller's to mem_free. */
int live_ask_wait(const char *address,
                  uint16_t port,
                  const struct auth_id *id,
                  const struct live_query *q,
                  uint64_t deadline_ns,
                  void **ret_answer,
                  size_t *ret_n,
                  struct err *err);

#endif
