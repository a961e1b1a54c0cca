/* SPDX-License-Identifier: Apache-2.0 */
/* A connection belongs to a process when its first message, READY, has named the
 * process. A connection of another user, or one that names another process, is
 * closed. So is a process that does not read: it finds that its launcher has gone.
 * Called by crew.c. */
#include "runtime/launch/member_door.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/unix.h"

#define UNNAMED_MAX 16 /* connections that have not named a process */
#define NO_PROCESS  UINT32_MAX
#define EVENTS_MAX  32

struct member_conn {
    int fd;     /* -1: none */
    uint32_t i; /* of its process */
};
struct member_name {
    uint32_t slot, incarnation; /* incarnation 0: there is no process */
};
struct member_door {
    uint32_t n;
    member_door_fn on_message;
    void *arg;
    int listen_fd, epoll_fd;
    char name[UNIX_NAME_BYTES];
    struct member_name *names; /* [n] */
    struct member_conn *conn;  /* [n + UNNAMED_MAX] */
};

static uint32_t door_n_conns(const struct member_door *d)
{
    return d->n + UNNAMED_MAX;
}

static void member_conn_close(struct member_conn *c)
{
    fd_close(&c->fd); /* epoll forgets it */
    c->i = NO_PROCESS;
}

static int member_door_watch(struct member_door *d, int fd, uint32_t tag)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.u32 = tag};

    return epoll_ctl(d->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

static int member_door_listen(struct member_door *d, struct err *err)
{
    int rc = unix_listen_packets(&d->listen_fd, d->name, err);

    if (rc < 0)
        return rc;
    d->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    rc = d->epoll_fd < 0 ? -errno : member_door_watch(d, d->listen_fd, NO_PROCESS);
    return rc < 0 ? err_errno(err, -rc, "a socket for the processes of this host") : 0;
}

int member_door_open(uint32_t n,
                     member_door_fn on_message,
                     void *arg,
                     struct member_door **ret,
                     struct err *err)
{
    struct member_door *d = mem_zalloc(sizeof(*d));
    int rc;

    if (!d)
        return err_set(err, -ENOMEM, "out of memory");
    *d = (struct member_door){
        .n = n, .on_message = on_message, .arg = arg, .listen_fd = -1, .epoll_fd = -1};
    d->names = mem_calloc(n, sizeof(*d->names));
    d->conn = mem_calloc(door_n_conns(d), sizeof(*d->conn));
    for (uint32_t i = 0; d->conn && i < door_n_conns(d); i++)
        d->conn[i] = (struct member_conn){-1, NO_PROCESS};
    rc = d->names && d->conn ? member_door_listen(d, err)
                             : err_set(err, -ENOMEM, "out of memory");
    if (rc < 0) {
        member_door_close(d);
        return rc;
    }
    *ret = d;
    return 0;
}

void member_door_close(struct member_door *d)
{
    if (!d)
        return;
    for (uint32_t i = 0; d->conn && i < door_n_conns(d); i++)
        member_conn_close(&d->conn[i]);
    fd_close(&d->listen_fd);
    fd_close(&d->epoll_fd);
    mem_free(d->names);
    mem_free(d->conn);
    mem_free(d);
}

const char *member_door_name(const struct member_door *d)
{
    return d->name;
}

static struct member_conn *member_door_find(struct member_door *d, uint32_t i)
{
    for (uint32_t k = 0; k < door_n_conns(d); k++)
        if (d->conn[k].fd >= 0 && d->conn[k].i == i)
            return &d->conn[k];
    return NULL;
}

/* Which process sends this READY. */
static uint32_t member_door_look_up(const struct member_door *d,
                                    const struct member_message *m)
{
    for (uint32_t i = 0; m->incarnation != 0 && i < d->n; i++)
        if (d->names[i].slot == m->slot && d->names[i].incarnation == m->incarnation)
            return i;
    return NO_PROCESS;
}

void member_door_expect(struct member_door *d,
                        uint32_t i,
                        uint32_t slot,
                        uint32_t incarnation)
{
    struct member_conn *c = member_door_find(d, i);

    if (c)
        member_conn_close(c);
    d->names[i] = (struct member_name){slot, incarnation};
}

void member_door_send(struct member_door *d, uint32_t i, const void *p, size_t n)
{
    struct member_conn *c = member_door_find(d, i);

    if (!c || send(c->fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
        return;
    log_warn("a process does not read what its launcher sends", "slot=%u cause=\"%s\"",
             d->names[i].slot, strerror(errno));
    member_conn_close(c);
}

int member_door_fd(const struct member_door *d)
{
    return d->epoll_fd;
}

static bool socket_is_ours(int fd)
{
    struct ucred peer;

    return unix_read_peer(fd, &peer) == 0 && (peer.uid == geteuid() || peer.uid == 0);
}

static void member_door_accept(struct member_door *d)
{
    int fd;

    while ((fd = accept4(d->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK))
           >= 0) {
        uint32_t i = 0;

        while (i < door_n_conns(d) && d->conn[i].fd >= 0)
            i++;
        if (i == door_n_conns(d) || !socket_is_ours(fd)
            || member_door_watch(d, fd, i) < 0) {
            fd_close(&fd);
            continue;
        }
        d->conn[i] = (struct member_conn){fd, NO_PROCESS};
    }
}

/* False: it is not served. */
static bool member_conn_name(struct member_door *d,
                             struct member_conn *c,
                             const struct member_message *m)
{
    const uint32_t i = m->type == MEMBER_READY ? member_door_look_up(d, m) : c->i;
    struct member_conn *before;

    if (i == NO_PROCESS || (c->i != NO_PROCESS && c->i != i))
        return false;
    before = member_door_find(d, i);
    if (before && before != c)
        member_conn_close(before);
    c->i = i;
    return true;
}

static void member_conn_serve(struct member_door *d, struct member_conn *c)
{
    uint8_t p[MEMBER_MESSAGE_MAX_BYTES];
    struct member_message m;

    for (;;) {
        ssize_t n = recv(c->fd, p, sizeof(p), MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0 || member_message_read(p, (size_t)n, &m, NULL) < 0
            || (m.type != MEMBER_READY && m.type != MEMBER_COMMIT
                && m.type != MEMBER_ENDING)
            || !member_conn_name(d, c, &m)) {
            member_conn_close(c);
            return;
        }
        d->on_message(d->arg, c->i, &m, p, (size_t)n);
        if (c->fd < 0)
            return;
    }
}

void member_door_serve(struct member_door *d)
{
    struct epoll_event ev[EVENTS_MAX];
    int n = epoll_wait(d->epoll_fd, ev, EVENTS_MAX, 0);

    for (int i = 0; i < n; i++) {
        if (ev[i].data.u32 == NO_PROCESS)
            member_door_accept(d);
        else if (d->conn[ev[i].data.u32].fd >= 0)
            member_conn_serve(d, &d->conn[ev[i].data.u32]);
    }
}
