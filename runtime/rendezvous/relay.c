/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a relay that faces the members below it:
 *
 *   below[i]  --ENTER, PUT, LEFT-->  up     from[place] = the connection and the pass
 *             <--REFUSED-----------         by from[place], if the pass is the same
 *             <--ALL---------------         to each connection once
 *
 * A connection carries the frames of its member and of those behind it. The last ENTER of
 * a place decides where the place is; frames of it that come by another connection are
 * late, and dropped. So a member that has moved within this subtree is never reported as
 * lost because of its old connection.
 *
 * A frame that cannot be sent up because the connection is broken is not reported here:
 * client.c sees the same when it reads. */
#include "runtime/rendezvous/relay.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/rendezvous/hub.h"
#include "runtime/wire/bytes.h"

struct relay_from {
    struct rdv_conn *conn; /* NULL: the place is not below */
    uint32_t pass;
};
struct rdv_relay {
    struct rdv_hub hub;
    int listen_fd;
    uint16_t port;
    uint32_t size;
    struct frame_conn *up; /* NULL: detached */
    uint32_t up_events;
    int up_rc;               /* negative: it has lost a frame */
    struct relay_from *from; /* by place */
};

static void
relay_send_up(struct rdv_relay *r, enum rdv_type type, const void *p, size_t n)
{
    int rc = frame_send(r->up, (uint8_t)type, p, n);

    if (rc == -ENOMEM || rc == -ENOBUFS)
        r->up_rc = rc; /* the frame is lost */
}

static void relay_on_gone(void *arg, struct rdv_conn *c)
{
    struct rdv_relay *r = arg;

    for (uint32_t i = 0; i < r->size; i++) {
        uint8_t left[4];

        if (r->from[i].conn != c)
            continue;
        r->from[i].conn = NULL;
        bytes_store_u32(left, i);
        relay_send_up(r, RDV_LEFT, left, sizeof(left));
    }
}

static void
relay_on_left(struct rdv_relay *r, struct rdv_conn *c, const struct frame *f)
{
    uint32_t place;

    if (rdv_left_parse(f->p, f->n, &place, NULL) || place >= r->size) {
        c->is_dead = true;
    } else if (r->from[place].conn == c) {
        r->from[place].conn = NULL;
        relay_send_up(r, RDV_LEFT, f->p, f->n);
    }
}

static void relay_welcome(struct rdv_conn *c, const struct rdv_enter *enter)
{
    struct rdv_msg *msg = rdv_msg_new(8);

    if (!msg) {
        c->is_dead = true;
        return;
    }
    bytes_store_u32(msg->data, enter->place);
    bytes_store_u32(msg->data + 4, enter->pass);
    rdv_msg_seal(msg);
    rdv_conn_send(c, RDV_WELCOME, msg);
    rdv_msg_unref(msg);
}

static void
relay_on_enter(struct rdv_relay *r, struct rdv_conn *c, const struct frame *f)
{
    struct rdv_enter enter;

    if (rdv_enter_parse(f->p, f->n, &enter, NULL) || enter.size != r->size) {
        c->is_dead = true;
        return;
    }
    r->from[enter.place] = (struct relay_from){c, enter.pass};
    relay_send_up(r, RDV_ENTER, f->p, f->n);
    if (c->is_member)
        return; /* of a member behind it */
    rdv_conn_join(c, enter.place, r->size);
    relay_welcome(c, &enter);
}

static void relay_on_put(struct rdv_relay *r, struct rdv_conn *c, const struct frame *f)
{
    struct rdv_put put;

    if (rdv_put_parse(f->p, f->n, &put, NULL) || put.place >= r->size)
        c->is_dead = true;
    else if (r->from[put.place].conn == c)
        relay_send_up(r, RDV_PUT, f->p, f->n);
}

static void relay_on_frame(void *arg, struct rdv_conn *c, const struct frame *f)
{
    struct rdv_relay *r = arg;

    if (f->type == RDV_ENTER)
        relay_on_enter(r, c, f);
    else if (c->is_member && f->type == RDV_PUT)
        relay_on_put(r, c, f);
    else if (c->is_member && f->type == RDV_LEFT)
        relay_on_left(r, c, f);
    else
        c->is_dead = true;
}

int relay_new(const struct auth_id *id,
              uint32_t size,
              struct rdv_relay **ret,
              struct err *err)
{
    struct rdv_relay *r = mem_zalloc(sizeof(*r));
    int rc;

    if (!r)
        return err_set(err, -ENOMEM, "out of memory for a relay");
    r->listen_fd = -1;
    r->size = size;
    r->hub = (struct rdv_hub){.epoll_fd = -1,
                              .id = id,
                              .on_frame = relay_on_frame,
                              .on_gone = relay_on_gone,
                              .arg = r};
    r->from = mem_calloc(size, sizeof(*r->from));
    rc = r->from ? 0 : err_set(err, -ENOMEM, "out of memory for %u members", size);
    if (rc == 0)
        rc = tcp_listen("::", 0, &r->listen_fd, &r->port, err);
    if (rc == 0)
        rc = rdv_hub_open(&r->hub, r->listen_fd, err);
    if (rc < 0) {
        relay_free(r);
        return rc;
    }
    *ret = r;
    return 0;
}

uint16_t relay_port(const struct rdv_relay *r)
{
    return r->port;
}

int relay_attach(struct rdv_relay *r, struct frame_conn *up)
{
    int rc = rdv_hub_watch(&r->hub, EPOLL_CTL_ADD, up->fd, EPOLLIN);

    if (rc < 0)
        return rc;
    r->up = up;
    r->up_events = EPOLLIN;
    r->up_rc = 0;
    return 0;
}

void relay_detach(struct rdv_relay *r)
{
    if (!r->up)
        return;
    (void)rdv_hub_watch(&r->hub, EPOLL_CTL_DEL, r->up->fd, 0); /* it is in the set */
    r->up = NULL;
    rdv_hub_drop_all(&r->hub);
    memset(r->from, 0, (size_t)r->size * sizeof(*r->from));
}

int relay_turn(struct rdv_relay *r, uint64_t until_ns)
{
    uint32_t events = EPOLLIN | (frame_unsent(r->up) ? EPOLLOUT : 0u);

    if (events != r->up_events
        && rdv_hub_watch(&r->hub, EPOLL_CTL_MOD, r->up->fd, events) == 0)
        r->up_events = events;
    rdv_hub_turn(&r->hub, until_ns);
    (void)frame_flush(r->up); /* see top */
    return r->up_rc;
}

int relay_send_all(struct rdv_relay *r, const struct frame *f)
{
    struct rdv_msg *msg = r->hub.first ? rdv_msg_new((uint32_t)f->n) : NULL;

    if (!msg)
        return r->hub.first ? -ENOMEM : 0;
    memcpy(msg->data, f->p, f->n);
    rdv_msg_seal(msg);
    for (struct rdv_conn *c = r->hub.first; c; c = c->next)
        if (c->is_member && !c->is_dead)
            rdv_conn_send(c, (enum rdv_type)f->type, msg);
    rdv_msg_unref(msg);
    return 0;
}

static enum rdv_code refused_code(int error)
{
    switch (error) {
    case -ECANCELED:
        return RDV_CODE_CANCELED;
    case -ETIMEDOUT:
        return RDV_CODE_TIMEOUT;
    case -ESTALE:
        return RDV_CODE_STALE;
    default:
        return RDV_CODE_INVALID;
    }
}

void relay_refuse(struct rdv_relay *r, const struct rdv_refused *refused)
{
    const struct relay_from *from;

    if (refused->place >= r->size)
        return;
    from = &r->from[refused->place];
    if (from->conn && !from->conn->is_dead && from->pass == refused->pass)
        rdv_conn_refuse(from->conn, refused->place, refused->pass,
                        refused_code(refused->why.code), refused->why.text);
}

void relay_refuse_all(struct rdv_relay *r, const char *text)
{
    for (struct rdv_conn *c = r->hub.first; c; c = c->next)
        if (c->is_member && !c->is_dead)
            rdv_conn_refuse(c, RDV_NO_PLACE, 0, RDV_CODE_TIMEOUT, text);
}

void relay_flush(struct rdv_relay *r, uint64_t until_ns)
{
    if (!rdv_hub_has_output(&r->hub))
        return;
    /* `up` may be readable, or closed: that would end each turn at once. */
    (void)rdv_hub_watch(&r->hub, EPOLL_CTL_DEL, r->up->fd, 0); /* it is in the set */
    while (rdv_hub_has_output(&r->hub) && clock_left_ms(until_ns) != 0)
        rdv_hub_turn(&r->hub, until_ns);
    r->up_rc = rdv_hub_watch(&r->hub, EPOLL_CTL_ADD, r->up->fd, r->up_events);
}

void relay_free(struct rdv_relay *r)
{
    if (!r)
        return;
    rdv_hub_close(&r->hub);
    fd_close(&r->listen_fd);
    mem_free(r->from);
    mem_free(r);
}
