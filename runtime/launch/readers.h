/* SPDX-License-Identifier: Apache-2.0 */
/* Connections that ask the hub for the live report (live/live_query.h). They are apart
 * from those of agents: they are few, short, and their loss means nothing. One thread. */
#ifndef RUNTIME_LAUNCH_READERS_H
#define RUNTIME_LAUNCH_READERS_H

#include <poll.h>

#include "runtime/launch/conn.h"
#include "runtime/live/live_ask.h"

#define READERS_MAX    16
#define READER_TIME_NS (10 * NS_PER_S) /* for the query and the end of the connection */

struct reader {
    struct conn *conn;
    uint64_t deadline_ns;
    bool has_query, is_answered;
    struct live_query query;
    uint32_t ticket; /* for the function that answers; 0 at first */
};

/* Appends the answer to x->query to out. 0; -errno with err: that is the answer;
 * -EINPROGRESS: it is called again at the next readers_serve. */
typedef int (*reader_answer_fn)(void *arg,
                                struct reader *x,
                                struct strbuf *out,
                                struct err *err);

struct readers {
    struct reader v[READERS_MAX];
    size_t n;
};

/* Takes ownership of m->fd. Closes it if there are READERS_MAX already. */
void readers_admit(struct readers *r, const struct admitted *m, uint64_t now_ns);
/* Fills READERS_MAX entries. */
void readers_fill_fds(const struct readers *r, struct pollfd *fds);
/* Reads queries, sends answers, closes what is over. Call after each poll. */
void readers_serve(struct readers *r,
                   reader_answer_fn answer,
                   void *arg,
                   uint64_t now_ns);
/* When readers_serve must be called at the latest; UINT64_MAX: no time. */
uint64_t readers_next_ns(const struct readers *r);
void readers_close(struct readers *r);

#endif
