/* SPDX-License-Identifier: Apache-2.0 */
/* The links of horovodrun, or of an agent that starts other agents. Never blocks. Call
 * from the main thread only. */
#ifndef RUNTIME_LAUNCH_LINKS_H
#define RUNTIME_LAUNCH_LINKS_H

#include "runtime/launch/link.h"

struct link_set {
    struct link_common common;
    struct link *v;
    size_t n, cap;
};

/* Copies c; borrows env, signals and guard. */
int links_init(struct link_set *s, const struct links_config *c, struct err *err);
void links_release(struct link_set *s); /* closes all links; kills their processes */
/* Borrows host. Not in a callback. */
int links_add(struct link_set *s,
              enum link_kind kind,
              const char *host,
              uint32_t first,
              uint32_t end,
              struct err *err);
/* The i-th link is GONE: another attempt, perhaps for another host, until deadline_ns. Not
 * in a callback. */
void links_renew(struct link_set *s,
                 size_t i,
                 enum link_kind kind,
                 const char *host,
                 uint64_t deadline_ns);
/* Ends the i-th link; on_lost follows. */
void links_drop(struct link_set *s, size_t i, const char *why);
/* A child was just reaped. If it was the process of a link, its number is not used any
 * more: it may soon be that of another process. */
void links_child_reaped(struct link_set *s, pid_t pid);
/* Sets the connection of a child that is already an agent. Takes ownership of fd. */
void links_adopt(struct link_set *s, size_t i, pid_t pid, int fd);
nfds_t links_pollfds(const struct link_set *s,
                     struct pollfd *p); /* p: LINK_FDS * n entries */
/* Reads and writes, starts attempts, checks deadlines, and calls the callbacks. */
void links_serve(struct link_set *s);
uint64_t links_next_ns(const struct link_set *s,
                       uint64_t now_ns); /* time of the next call */
/* Sends to the agent of a host through its link. The next poll detects a lost link. */
void links_send(struct link_set *s,
                enum errand_type type,
                uint32_t host,
                const struct strbuf *payload);
size_t links_left(const struct link_set *s); /* links that are not GONE */
/* true if an attempt runs or a link is ENDING */
bool links_are_opening(const struct link_set *s);
/* Ends the links that are not open yet; with all, also the open ones. */
void links_close(struct link_set *s, bool all);

#endif
