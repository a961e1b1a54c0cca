/* SPDX-License-Identifier: Apache-2.0 */
/* Ways to the agents of other hosts: through ssh, to a serving hvd-agent, or to a child
 * on this host. Whatever the way, what comes out is a channel (channel.h) or a
 * sentence. Never blocks. One thread, the main one. */
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
    LINK_NEW,      /* not started: enough others are on their way */
    LINK_DIALING,  /* serve: connect and handshake, in a thread */
    LINK_GREETING, /* else: waiting for the agent's first line */
    LINK_OPEN,
    LINK_ENDING, /* it broke; what ssh says is still awaited */
    LINK_GONE
};

/* The agent's first line is greeting, protocol, its version and a newline; we answer by
 * LINK_ANSWER_TEXT and the job's key. */
#define LINK_GREETING_TEXT "HVD-AGENT/"
#define LINK_PROTOCOL      "1 "
#define LINK_ANSWER_TEXT   "HVD-JOB/1\n"
#define LINK_SAID_BYTES    2048

struct link {
    enum link_kind kind;
    enum link_state state;
    const char *host;
    uint32_t first, end; /* hosts that are behind it */
    pid_t pid;
    int fd, err_fd; /* LINK_GREETING: the agent's ends; ssh's standard error */
    struct dial *dial;
    struct channel channel; /* LINK_OPEN */
    struct strbuf greeting;
    struct lines err_lines;
    char said[LINK_SAID_BYTES]; /* the end of ssh's standard error */
    char why[240];
    uint64_t ending_ns;
};

struct link_set;
typedef void (*link_open_fn)(void *arg, struct link *l);
typedef int (*link_frame_fn)(void *arg,
                             struct link *l,
                             const struct frame *f,
                             struct err *err);
/* Once for each link; l->why says why. */
typedef void (*link_lost_fn)(void *arg, struct link *l);

struct links_config {
    struct ssh_how ssh;
    uint16_t agent_port;       /* LINK_SERVE */
    bool is_patient;           /* LINK_SERVE: agents may come late */
    char agent_path[PATH_MAX]; /* LINK_SSH */
    struct token root;    /* ssh: the job's key, which we send; serve: the shared one */
    uint64_t deadline_ns; /* for all to be open */
    uint64_t peer_timeout_ns;
    const struct signals *signals;
    struct guard *guard;
    char *const *env; /* of ssh */
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

/* Copies c but for env, signals and guard. */
int links_init(struct link_set *s, const struct links_config *c, struct err *err);
void links_release(struct link_set *s); /* closes all; kills what still runs */
/* host is borrowed. Before the first links_serve. */
int links_add(struct link_set *s,
              enum link_kind kind,
              const char *host,
              uint32_t first,
              uint32_t end,
              struct err *err);
/* A child of ours that is an agent already: takes over fd. */
void links_adopt(struct link_set *s, size_t i, pid_t pid, int fd);
struct link *links_to(struct link_set *s, uint32_t host); /* NULL: none open */
#define LINK_FDS 3
nfds_t links_pollfds(const struct link_set *s,
                     struct pollfd *p); /* room: LINK_FDS * n */
/* Serves what poll reported, starts what is due, keeps time; calls back. */
void links_serve(struct link_set *s);
uint64_t links_next_ns(const struct link_set *s,
                       uint64_t now_ns); /* when to call again */
/* Sends to the agent of a host, by the link that leads there; a lost one shows later.
 */
void links_send(struct link_set *s,
                enum errand_type type,
                uint32_t host,
                const struct strbuf *payload);
size_t links_left(const struct link_set *s);       /* not gone */
bool links_on_their_way(const struct link_set *s); /* some are between NEW and OPEN */
/* No more is expected of those that are not open yet, or of any. */
void links_close(struct link_set *s, bool all);

#endif
