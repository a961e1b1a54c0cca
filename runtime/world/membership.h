/* SPDX-License-Identifier: Apache-2.0 */
/* The connection of a process of an elastic job to its launcher (wire/member_message.h):
 * by it the process gets one world after another, and learns when one is over. One for a
 * process; it outlives worlds. */
#ifndef RUNTIME_WORLD_MEMBERSHIP_H
#define RUNTIME_WORLD_MEMBERSHIP_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/contract/contract.h"

struct membership;

/* text: HVD_ELASTIC. Connects, and starts the thread that receives. -EINVAL: the text, or
 * another process is in this slot (claim.h); -ECONNREFUSED: nobody listens. */
int membership_open(const char *text,
                    const char *job_id,
                    struct membership **ret,
                    struct err *err);
/* Of tests: a process keeps it until it ends. Accepts NULL. */
void membership_close(struct membership *m);

/* --- worlds, one thread --- */

/* Reports ready, and waits for a world later than the last one, without a limit: the
 * launcher has the deadline of the job, and stops processes that it does not need. Then
 * *c has its place, generation and rendezvous. -EPIPE: the launcher has gone. */
int membership_join(struct membership *m, struct contract *c, struct err *err);
/* The generation that membership_join returned last; 0: none. */
uint32_t membership_generation(const struct membership *m);
/* 0; -ECANCELED with the reason once the launcher has said that the last world is over,
 * or has gone. */
int membership_check(struct membership *m, struct err *err);
/* Calls end(arg, why), once, when the last world is over, now or later, in the thread
 * that receives; end must not call back. After membership_unwatch it is neither called nor
 * running. */
typedef void (*membership_end_fn)(void *arg, const char *why);
void membership_watch(struct membership *m, membership_end_fn end, void *arg);
void membership_unwatch(struct membership *m); /* accepts NULL */

/* --- any thread --- */

/* As hvd_elastic_take_change. */
int membership_take_change(struct membership *m);
/* The members of that world have saved their state. Sends it at most once a second for a
 * world, the first time at once. */
void membership_commit(struct membership *m, uint32_t generation, uint64_t now_ns);
/* This process has failed and is about to exit; why: "ended: ValueError". Other members
 * need not wait until it has. */
void membership_end(struct membership *m, const char *why);
/* In a forked child, which has no part in it: closes its copies of the descriptors. */
void membership_forked(struct membership *m); /* accepts NULL */

#endif
