/* SPDX-License-Identifier: Apache-2.0 */
/* Connections to the agents of hosts: through ssh, to a serving hvd-agent, or to a
 * child on this host. Each one becomes a channel (channel.h) or ends with an error
 * message. Never blocks. Call from the main thread only. */
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

struct link_set;
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
struct link_set {
    struct links_config c;
    struct link *v;
    size_t n, cap;
    char ssh_path[PATH_MAX];
    struct errand_words env;
};

/* Copies c; borrows env, signals and guard. */
int links_init(struct link_set *s, const struct links_config *c, struct err *err);
void links_release(struct link_set *s); /* closes all links; kills their processes */
/* Borrows host. Call before the first links_serve. */
int links_add(struct link_set *s,
              enum link_kind kind,
              const char *host,
              uint32_t first,
              uint32_t end,
              struct err *err);
/* A child was just reaped. If it was the process of a link, its number is not used any
 * more: it may soon be that of another process. */
void links_child_reaped(struct link_set *s, pid_t pid);
/* Sets the connection of a child that is already an agent. Takes ownership of fd. */
void links_adopt(struct link_set *s, size_t i, pid_t pid, int fd);
struct link *links_to(struct link_set *s, uint32_t host); /* NULL: no open link */
#define LINK_FDS 3
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
