/* SPDX-License-Identifier: Apache-2.0 */
/* A connection to the agent of a host: through ssh, to a serving hvd-agent, or to a child
 * on this host. It becomes a channel (channel.h) or ends with an error message. Never
 * blocks. Call from the main thread only. links.h has a set of them. */
#ifndef RUNTIME_LAUNCH_LINK_H
#define RUNTIME_LAUNCH_LINK_H

#include "runtime/launch/channel.h"
#include "runtime/launch/core/errand.h"
#include "runtime/launch/core/lines.h"
#include "runtime/launch/dial.h"
#include "runtime/launch/guard.h"
#include "runtime/launch/signals.h"

enum link_kind { LINK_LOCAL, LINK_SSH, LINK_SERVE };
enum link_state {
    LINK_NEW,      /* not started: enough other attempts are running */
    LINK_DIALING,  /* serve: connect and handshake, in a thread */
    LINK_GREETING, /* ssh, child: waiting for the agent's first line */
    LINK_OPEN,
    LINK_ENDING, /* it ended; ssh's standard error is still read */
    LINK_GONE
};

/* The agent's first line is LINK_GREETING_TEXT, protocol, version and a newline. The
 * answer is LINK_ANSWER_TEXT and the job's key. */
#define LINK_GREETING_TEXT "HVD-AGENT/"
#define LINK_PROTOCOL      "1 "
#define LINK_ANSWER_TEXT   "HVD-JOB/1\n"
#define LINK_SAID_BYTES    2048

struct link {
    enum link_kind kind;
    enum link_state state;
    const char *host;
    uint32_t first, end; /* hosts first .. end-1 are connected through it */
    pid_t pid;
    int fd, err_fd; /* LINK_GREETING: connection to the agent; ssh's standard error */
    struct dial *dial;
    struct channel channel; /* in LINK_OPEN */
    struct strbuf greeting;
    struct lines err_lines;
    char said[LINK_SAID_BYTES]; /* the last part of ssh's standard error */
    char why[240];
    uint64_t ending_ns;
};

typedef void (*link_open_fn)(void *arg, struct link *l);
typedef int (*link_frame_fn)(void *arg,
                             struct link *l,
                             const struct frame *f,
                             struct err *err);
/* Called once for each link; l->why is the cause. */
typedef void (*link_lost_fn)(void *arg, struct link *l);

struct links_config {
    struct ssh_how ssh;
    uint16_t agent_port;       /* LINK_SERVE */
    bool is_patient;           /* LINK_SERVE: retry until the deadline */
    char agent_path[PATH_MAX]; /* LINK_SSH */
    struct token root; /* ssh: the job's key, which is sent; serve: the shared token */
    uint64_t deadline_ns; /* for all links to be open */
    uint64_t peer_timeout_ns;
    const struct signals *signals;
    struct guard *guard;
    char *const *env;
    link_open_fn on_open;
    link_frame_fn on_frame;
    link_lost_fn on_lost;
    void *arg;
};
struct link_common { /* of all links of a set */
    struct links_config c;
    char ssh_path[PATH_MAX]; /* "": not looked up yet */
    struct errand_words env; /* of ssh */
};

/* Borrows host. */
void link_init(struct link *l,
               enum link_kind kind,
               const char *host,
               uint32_t first,
               uint32_t end);
void link_release(struct link_common *k, struct link *l); /* kills its process */
/* Sets the connection of a child that is already an agent. Takes ownership of fd. */
void link_adopt(struct link *l, pid_t pid, int fd);
void link_start(struct link_common *k, struct link *l); /* in LINK_NEW */
bool link_is_opening(const struct link *l);             /* an attempt runs */
/* Kills the process of the link and all of its group. */
void link_kill(struct link_common *k, struct link *l);
/* why NULL: the cause is taken from ssh's standard error. */
void link_end(struct link_common *k, struct link *l, const char *why);
#define LINK_FDS 3
nfds_t link_pollfds(const struct link *l, struct pollfd *p); /* p: LINK_FDS entries */
/* Reads and writes, checks deadlines, and calls the callbacks. */
void link_serve(struct link_common *k, struct link *l, uint64_t now_ns);
uint64_t link_next_ns(const struct link_common *k, const struct link *l);
/* In LINK_OPEN: sends payload (NULL: none) to the agent of host. */
void link_send(struct link_common *k,
               struct link *l,
               enum errand_type type,
               uint32_t host,
               const struct strbuf *payload);

#endif
