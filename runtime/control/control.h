/* SPDX-License-Identifier: Apache-2.0 */
/* The control channel: messages about work, not data. Requests go up to rank 0, answers
 * come down to all ranks in one order; losses, silence and goodbyes are sent the same
 * way.
 *
 * It is a tree over the hosts with rank 0 on top (shape.h). Callers only use up, down,
 * ended and the cause.
 *
 * One thread at a time (the coordinator's seat), except for control_epoll_fd(),
 * control_wake() and control_break(). */
#ifndef RUNTIME_CONTROL_CONTROL_H
#define RUNTIME_CONTROL_CONTROL_H

#include "runtime/base/strbuf.h"
#include "runtime/contract/hostlist.h"
#include "runtime/core/goodbye.h"
#include "runtime/core/replica_guard.h"
#include "runtime/wire/auth.h"

enum leave_reason { LEAVE_SHUTDOWN, LEAVE_EXIT };

struct leave { /* a goodbye */
    enum leave_reason why;
    char how[GOODBYE_HOW_BYTES]; /* how the program failed, in place of why; "": not */
};

#define CONTROL_FANOUT_MIN 2
#define CONTROL_FANOUT_MAX 64

struct control_member { /* what every rank has received about each other rank */
    char host[HOST_NAME_MAX_BYTES];
    uint32_t pid, local_size;
    /* Its HVD_CONTROL_FANOUT, HVD_REPORT and HVD_DRY_RUN; rank 0's are the world's. */
    uint32_t fanout;
    bool reports, is_dry_run;
    bool is_new;                /* this is its first world; unused here */
    struct replica_guard guard; /* as HVD_REPORT */
};

/* Called from control_pump, in order of arrival. An error breaks the world with its
 * text. */
struct control_handlers {
    /* Rank 0 only: a message of a rank; also after `ended`, if the rank had sent it
     * before it received the end. */
    int (*up)(void *arg, uint32_t rank, const uint8_t *p, size_t n, struct err *err);
    /* Not on rank 0: a message of answers. */
    int (*down)(void *arg, const uint8_t *p, size_t n, struct err *err);
    /* All ranks: a rank has left ("rank 1 (host b, pid 123) called shutdown()"); no
     * answer follows. Once. is_failure: it has reported a failure of its program. */
    void (*ended)(void *arg, const char *who, bool is_failure);
    /* Rank 0 only, after `ended`: what a rank passed to control_report. */
    void (*report)(void *arg, uint32_t rank, const uint8_t *p, size_t n);
    void *arg;
};

struct control_config {
    uint32_t rank, size;
    uint32_t
        fanout; /* of the tree, the same on all ranks: CONTROL_FANOUT_MIN to _MAX */
    struct auth_id id; /* token and job_id outlive the channel */
    uint64_t peer_timeout_ns;
    const struct control_member *members; /* size entries; outlive the channel */
    /* Follows "connection closed" in causes: what that may mean here. NULL: nothing. */
    const char *closed_means;
    struct control_handlers handlers;
};

struct control;

/* Creates the object. local_addr: address of this host's interface to other ranks. */
int control_open(const struct control_config *cfg,
                 const char *local_addr,
                 struct control **ret,
                 struct err *err);
/* Listens for the children; does nothing on a rank without children. */
int control_listen(struct control *c, struct err *err);
/* What the children need to find this rank; all ranks may call it. */
void control_hello(const struct control *c, struct strbuf *out);
/* The rank whose hello control_join needs; on rank 0 its own. */
uint32_t control_parent(const struct control *c);
/* The number of children: control_down sends to them, and messages from the parent are
 * forwarded to them. */
uint32_t control_n_below(const struct control *c);
/* Connects to the parent, then accepts the children. hello: of control_parent().
 * -ETIMEDOUT names the missing ranks. A failure is sent to the ranks that are connected
 * already. */
int control_join(struct control *c,
                 const uint8_t *hello,
                 size_t n,
                 uint64_t deadline_ns,
                 struct err *err);
void control_close(
    struct control *c); /* accepts NULL; sends what is unsent, at most 1 s */
/* In a forked child: only closes the descriptors, so that other ranks detect the
 * parent's exit. Async-signal safe. */
void control_forked(struct control *c);

int control_up(struct control *c, const void *p, size_t n); /* not on rank 0 */
int control_down(struct control *c,
                 const void *p,
                 size_t n); /* rank 0, to all other ranks */

/* This rank leaves in order; `ended` follows on every rank, also on this one.
 * Idempotent. */
void control_leave(struct control *c, const struct leave *leave);
/* After control_leave, for a process that ends without control_close: sends what is unsent,
 * and the goodbye to the ranks below. */
void control_flush(struct control *c, uint64_t deadline_ns);
/* After `ended`, once, not on rank 0: sends the totals of this rank to rank 0. */
void control_report(struct control *c, const void *p, size_t n);
/* Are reports of ranks below this one missing? A rank that stops to pump before cannot
 * forward them. */
bool control_awaits_reports(const struct control *c);
/* This rank cannot continue (its backend failed with this text). A cause that rank 0
 * finds takes precedence; within about a second control_pump fails with one of the two.
 * Idempotent. */
void control_suspect(struct control *c, const char *reason);
/* Ends the world with this cause. On rank 0: at once for all ranks. On another rank: at
 * once for it and the ranks below it; rank 0 receives the cause as of control_suspect.
 */
void control_abort(struct control *c, const char *cause);
/* Any thread, also while control_join waits: the launcher says that this world is over.
 * control_pump fails with this cause on this rank and those below it, also after
 * `ended`; the other ranks' launchers say so to them. The first call counts. */
void control_break(struct control *c, const char *cause);

/* Reads all that has arrived, sends heartbeats, checks for silence. Never blocks. 0;
 * once the world is broken, -ECONNABORTED with the cause, the same each time. */
int control_pump(struct control *c, struct err *err);
uint64_t
control_next_ns(const struct control *c); /* when control_pump must run at the latest */

int control_epoll_fd(
    const struct control *c); /* readable when control_pump has something to do */
void control_wake(
    const struct control *c); /* any thread: makes the epoll_fd readable once */
bool control_is_ended(const struct control *c);
/* "self", "unix" or "tcp": how rank r is reached; "via rank 8" if it is no neighbour in
 * the tree. Owned by the channel. */
const char *control_transport(const struct control *c, uint32_t r);

#endif
