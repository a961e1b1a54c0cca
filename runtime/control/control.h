/* SPDX-License-Identifier: Apache-2.0 */
/* The control channel: how ranks talk about work, not data. Requests go up to rank 0,
 * responses come down to everyone in one order; loss, silence and goodbyes travel the
 * same way.
 *
 * A tree over the hosts, rank 0 on top (shape.h); callers only know up, down, ended and
 * the cause.
 *
 * Thread rule: one thread at a time (the coordinator's seat), but control_cause() and
 * control_epoll_fd(). */
#ifndef RUNTIME_CONTROL_CONTROL_H
#define RUNTIME_CONTROL_CONTROL_H

#include "runtime/base/strbuf.h"
#include "runtime/contract/hostlist.h"
#include "runtime/rendezvous/auth.h"

enum leave_reason { LEAVE_SHUTDOWN, LEAVE_EXIT };

#define CONTROL_FANOUT_MIN 2
#define CONTROL_FANOUT_MAX 64

struct control_member { /* what every rank knows of every other */
    char host[HOST_NAME_MAX_BYTES];
    uint32_t pid, local_size;
    uint32_t fanout; /* its HVD_CONTROL_FANOUT; rank 0's is the world's */
};

/* Called from control_pump, in order of arrival. An error breaks the world with its
 * sentence. */
struct control_handlers {
    /* Rank 0 only: a message from a rank; after `ended` too, from a rank that had sent
     * it before it heard of the end. */
    int (*up)(void *arg, uint32_t rank, const uint8_t *p, size_t n, struct err *err);
    /* Not on rank 0: a message of responses. */
    int (*down)(void *arg, const uint8_t *p, size_t n, struct err *err);
    /* All ranks: somebody has left ("rank 1 (host b, pid 123) called shutdown()"); no
     * response follows. Once. */
    void (*ended)(void *arg, const char *who);
    void *arg;
};

struct control_config {
    uint32_t rank, size;
    uint32_t
        fanout; /* of the tree, the same on all ranks: CONTROL_FANOUT_MIN to _MAX */
    struct auth_id id; /* token and job_id outlive the channel */
    uint64_t peer_timeout_ns;
    const struct control_member *members; /* size entries; outlive the channel */
    struct control_handlers handlers;
};

struct control;

/* Makes the object. local_addr: address of our interface towards the others. */
int control_open(const struct control_config *cfg,
                 const char *local_addr,
                 struct control **ret,
                 struct err *err);
/* A rank that has others below it listens for them. Nothing elsewhere. */
int control_listen(struct control *c, struct err *err);
/* What those below need to find this rank; all ranks may call it. */
void control_hello(const struct control *c, struct strbuf *out);
/* Whose hello control_join wants; on rank 0 its own. */
uint32_t control_parent(const struct control *c);
/* How many ranks are right below: those that control_down sends to itself, and that
 * what comes down is passed on to. */
uint32_t control_n_below(const struct control *c);
/* Connects to the rank above, then accepts those below. hello: of control_parent().
 * -ETIMEDOUT names who is missing. A failure is told to those who are connected
 * already. */
int control_join(struct control *c,
                 const uint8_t *hello,
                 size_t n,
                 uint64_t deadline_ns,
                 struct err *err);
void control_close(
    struct control *c); /* accepts NULL; sends what is unsent, at most 1 s */
/* In a forked child: only closes the descriptors, so that the parent's death is seen.
 * Async-signal safe. */
void control_forked(struct control *c);

int control_up(struct control *c, const void *p, size_t n); /* not on rank 0 */
int control_down(struct control *c,
                 const void *p,
                 size_t n); /* rank 0, to all others */

/* This rank leaves in an orderly way; `ended` follows on every rank, here too.
 * Idempotent. */
void control_leave(struct control *c, enum leave_reason why);
/* This rank cannot go on (its backend failed with this sentence). The cause that rank 0
 * finds wins over it; within a second or so control_pump fails with either. Idempotent.
 */
void control_suspect(struct control *c, const char *sentence);
/* Ends the world for all with this cause, now; from rank 0, or before everything is
 * joined. */
void control_abort(struct control *c, const char *cause);

/* Takes all that has come, sends heartbeats, judges silence. Never blocks. 0; or, from
 * the moment the world is broken, -ECONNABORTED with the cause, the same each time. */
int control_pump(struct control *c, struct err *err);
/* Cheap look for arriving bytes while spinning: true when control_pump has something to
 * do. */
bool control_peek(const struct control *c);
uint64_t
control_next_ns(const struct control *c); /* when control_pump must run at the latest */

int control_epoll_fd(
    const struct control *c); /* readable when control_pump has something to do */
void control_wake(
    const struct control *c); /* any thread: makes the epoll_fd readable once */
bool control_is_ended(const struct control *c);
/* "self", "unix" or "tcp": how rank r is reached; "via rank 8" where it is no neighbour
 * in the tree. The channel's. */
const char *control_transport(const struct control *c, uint32_t r);

#endif
