/* SPDX-License-Identifier: Apache-2.0 */
/* A connection is a stranger (wire/door.c), then authenticated, then a member's, and at
 * last drained, if it was refused or redirected. Members are limited by what the server
 * decides (route.h), all others by RDV_PASSING_MAX: as many strangers are admitted as
 * connections may still become theirs. So 4,096 members that connect at once wait in the
 * kernel's queue.
 *
 * Called by server.c and relay.c. */
#include "runtime/rendezvous/hub.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"

#define EVENTS_A_TURN 64
#define ROOM_MIN      2 /* strangers, however many connections are passing */

static int
hub_watch_tag(const struct rdv_hub *h, int op, int fd, uint32_t events, const void *tag)
{
    struct epoll_event ev = {.events = events, .data.ptr = (void *)(uintptr_t)tag};

    return epoll_ctl(h->epoll_fd, op, fd, &ev) < 0 ? -errno : 0;
}

int rdv_hub_watch(struct rdv_hub *h, int op, int fd, uint32_t events)
{
    return hub_watch_tag(h, op, fd, events, h);
}

int rdv_hub_open(struct rdv_hub *h, int listen_fd, struct err *err)
{
    static const struct accept_kind kind = {.name = "rendezvous",
                                            .mine = ROLE_RENDEZVOUS_SERVER,
                                            .theirs = ROLE_RENDEZVOUS_CLIENT};
    int rc;

    h->first = NULL;
    h->acceptor = (struct acceptor){0};
    h->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (h->epoll_fd < 0)
        return err_errno(err, errno, "epoll");
    rc = acceptor_open(&h->acceptor, &kind, err);
    if (rc < 0)
        return rc;
    rc = hub_watch_tag(h, EPOLL_CTL_ADD, door_fd(h->acceptor.door), EPOLLIN,
                       &h->acceptor);
    if (rc < 0)
        return err_errno(err, -rc, "epoll_ctl");
    return door_listen(h->acceptor.door, listen_fd, false, err);
}

void rdv_hub_drop_all(struct rdv_hub *h)
{
    while (h->first) {
        struct rdv_conn *c = h->first;

        h->first = c->next;
        (void)epoll_ctl(h->epoll_fd, EPOLL_CTL_DEL, c->in.fd, NULL); /* it is there */
        rdv_conn_free(c);
    }
}

void rdv_hub_close(struct rdv_hub *h)
{
    rdv_hub_drop_all(h);
    acceptor_close(&h->acceptor);
    fd_close(&h->epoll_fd);
}

static void hub_limit_strangers(struct rdv_hub *h)
{
    const size_t n = h->n_passing + ROOM_MIN < RDV_PASSING_MAX
                         ? RDV_PASSING_MAX - h->n_passing
                         : ROOM_MIN;

    door_set_room(h->acceptor.door, n);
}

static void hub_admit(void *arg, const struct admitted *m)
{
    struct rdv_hub *h = arg;
    struct rdv_conn *c = rdv_conn_new(m, clock_now_ns());
    int fd = m->fd;

    if (!c) {
        fd_close(&fd);
        return;
    }
    c->events = EPOLLIN;
    if (hub_watch_tag(h, EPOLL_CTL_ADD, fd, c->events, c)) {
        rdv_conn_free(c);
        return;
    }
    c->next = h->first;
    h->first = c;
    h->n_passing++;
    hub_limit_strangers(h); /* more are accepted in the same turn */
}

/* Frees dead connections and updates the epoll events of live ones. */
static void hub_reap(struct rdv_hub *h)
{
    for (struct rdv_conn **at = &h->first; *at;) {
        struct rdv_conn *c = *at;

        if (!c->is_dead && c->events != rdv_conn_events(c)) {
            c->events = rdv_conn_events(c);
            c->is_dead = hub_watch_tag(h, EPOLL_CTL_MOD, c->in.fd, c->events, c) != 0;
        }
        if (!c->is_dead) {
            at = &c->next;
            continue;
        }
        if (c->is_member)
            h->on_gone(h->arg, c);
        *at = c->next;
        /* Closing alone would leave it in epoll while a process that was forked
         * meanwhile holds a copy of the descriptor. */
        (void)epoll_ctl(h->epoll_fd, EPOLL_CTL_DEL, c->in.fd, NULL);
        rdv_conn_free(c);
    }
}

/* Applies the deadlines of connections that are not a member's; returns the next. */
static uint64_t hub_expire(struct rdv_hub *h, uint64_t now_ns)
{
    uint64_t next = door_next_ns(h->acceptor.door);

    h->n_passing = 0;
    for (struct rdv_conn *c = h->first; c; c = c->next) {
        if (c->is_member || c->is_dead)
            continue;
        if (c->deadline_ns <= now_ns)
            c->is_dead = true;
        else
            h->n_passing++;
        next = earlier_ns(next, c->deadline_ns);
    }
    return next;
}

static void hub_handle_event(struct rdv_hub *h, const struct epoll_event *ev)
{
    struct rdv_conn *c = ev->data.ptr;

    /* The acceptor is served every turn. */
    if (ev->data.ptr == h || ev->data.ptr == &h->acceptor || c->is_dead)
        return;
    if (ev->events & EPOLLOUT)
        rdv_conn_flush(c);
    if (ev->events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        rdv_conn_read(c, h->on_frame, h->arg);
}

bool rdv_hub_has_output(const struct rdv_hub *h)
{
    for (const struct rdv_conn *c = h->first; c; c = c->next)
        if (c->is_member && !c->is_dead && c->out_first)
            return true;
    return false;
}

void rdv_hub_turn(struct rdv_hub *h, uint64_t until_ns)
{
    struct epoll_event ev[EVENTS_A_TURN];
    uint64_t next = hub_expire(h, clock_now_ns());

    hub_reap(h);
    next = earlier_ns(next, until_ns);
    int n = epoll_wait(h->epoll_fd, ev, EVENTS_A_TURN, clock_left_ms(next));
    for (int i = 0; i < n; i++)
        hub_handle_event(h, &ev[i]);
    hub_limit_strangers(h);
    acceptor_serve(&h->acceptor, h->id, hub_admit, h);
}
