/* SPDX-License-Identifier: Apache-2.0 */
/* The internals of the tree, shared by tree.c (connections and the pump), tree_frames.c
 * (frames), tree_cause.c (losses, causes, goodbyes) and join.c (connecting). No other
 * file includes it. */
#ifndef RUNTIME_CONTROL_TREE_H
#define RUNTIME_CONTROL_TREE_H

#include <stdatomic.h>

#include "runtime/control/address.h"
#include "runtime/control/bundle.h"
#include "runtime/control/control.h"
#include "runtime/control/shape.h"
#include "runtime/wire/frame.h"

#define TREE_MAX_BYTES ((16u << 20) + 64) /* of a frame: a message and its headers */
#define CAUSE_BYTES    480

enum tree_frame {                   /* types of frames */
                  TREE_WELCOME = 1, /* from the parent: nothing */
                  TREE_UP,          /* to the parent: bundle.h */
                  TREE_DOWN,        /* from the parent: core/message of responses */
                  TREE_ABORT, /* from the parent: text: the cause, for all ranks */
                  TREE_ENDED, /* from the parent: text: who left; after the last response */
                  TREE_FAILED, /* as TREE_ENDED: who left because its program failed */
                  TREE_HEARTBEAT, /* both ways: nothing */
};

struct tree_edge { /* a connection to the parent or a child */
    struct frame_conn conn;
    uint32_t rank; /* whose */
    uint64_t received_ns;
    bool has_left, is_unix, wants_out;
    char via[24]; /* "via rank 8" */
};

enum break_state { BREAK_NONE, BREAK_WRITING, BREAK_DUE, BREAK_TAKEN };

struct control {
    struct control_config cfg;
    struct tree_shape shape;
    int epoll_fd, wake_fd, tcp_fd, unix_fd;
    char addr[64], unix_name[UNIX_NAME_BYTES];
    uint16_t port;
    struct tree_edge *edges; /* [0]: the parent, closed on rank 0; then the children,
                                ascending */
    uint32_t n_edges;        /* 0 in a world of one */
    struct strbuf up;        /* items for the parent that are not sent yet, at most a
                                frame */
    uint64_t pumped_ns, beat_ns, beat_every_ns;
    /* when a neighbour counts as silent; UINT64_MAX: never */
    uint64_t silence_ns;
    uint64_t suspect_until_ns; /* 0: no suspicion */
    uint32_t suspect_rank;     /* the rank that reported it */
    char suspicion[CAUSE_BYTES], who_ended[CAUSE_BYTES];
    bool has_left, is_ended, is_broken;
    uint32_t n_under, n_reports; /* ranks below this one; those whose report arrived */
    struct leave left;           /* has_left */
    bool is_fresh; /* just joined: the buffers may already contain frames */
    struct err cause;
    _Atomic int break_state; /* enum break_state; any thread, as the text below */
    char break_text[CAUSE_BYTES];
};

static inline bool tree_is_root(const struct control *c)
{
    return c->cfg.rank == 0;
}

/* --- tree.c --- */

/* Takes ownership of the connection and adds it to the epoll set. */
int tree_adopt(struct control *c,
               uint32_t index,
               struct frame_conn *conn,
               bool is_unix,
               struct err *err);
void tree_drop(struct control *c, struct tree_edge *e);
/* Handles failures itself. A closed connection is no failure here: the pump handles
 * it. */
int tree_send(
    struct control *c, uint32_t index, enum tree_frame type, const void *p, size_t n);
int tree_send_children(struct control *c,
                       enum tree_frame type,
                       const void *p,
                       size_t n);

/* --- tree_frames.c --- */

/* 0, or -EBADMSG when the sender breaks the rules. */
int tree_on_frame(struct control *c, uint32_t index, const struct frame *f);
/* Not on rank 0: queues an item for the parent; tree_flush_up() sends it. */
int tree_put_up(struct control *c, const struct up_item *item);
int tree_flush_up(struct control *c);

/* --- tree_cause.c --- */

void tree_settle(struct control *c, const char *text);
/* Settles the cause of control_break, if it was called. True: it was, now or before. */
bool tree_take_break(struct control *c);
/* Sets err to "rank 1 (host b, pid 123) was lost: HOW", which launchers read, and returns
 * code. */
int tree_set_lost(
    const struct control *c, uint32_t rank, int code, const char *how, struct err *err);
void tree_end(struct control *c, const char *text, bool is_failure);
/* The connection failed with r. */
void tree_lost(struct control *c, uint32_t index, int r);
void tree_silent(struct control *c, uint32_t index);
/* Rank 0: handles an item from below. */
void tree_on_item(struct control *c, const struct up_item *item);
/* Called before the connections close: sends ENDED to the children of a rank that
 * leaves before it has received it. */
void tree_send_ended_early(struct control *c);
void tree_end_suspicion(struct control *c, uint64_t now_ns);

#endif
