/* SPDX-License-Identifier: Apache-2.0 */
/* Output is a queue of frames that share their payload: a round's answer is hashed once
 * for all members, although their keys differ.
 *
 * A failure only marks the connection dead; server.c frees it. Refused peers are
 * drained rather than closed, because closing a socket with unread input sends a reset,
 * which can overtake the refusal. */
#include "runtime/rendezvous/conn.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/wire/bytes.h"

#define MAX_OUT                                                                        \
    16 /* frames that a peer has not read, besides one for each member behind */

struct rdv_out {
    struct rdv_out *next;
    struct rdv_msg *msg;
    size_t at; /* bytes of header, payload and tag already sent */
    uint8_t head[FRAME_HEADER_BYTES], tag[FRAME_TAG_BYTES];
};

struct rdv_conn *rdv_conn_new(const struct admitted *m, uint64_t now_ns)
{
    struct rdv_conn *c = mem_zalloc(sizeof(*c));

    if (!c)
        return NULL;
    frame_open(&c->in, m->fd, &m->session, RDV_TO_SERVER_MAX);
    c->max_out = MAX_OUT;
    c->deadline_ns = now_ns + RDV_JOIN_MS * NS_PER_MS;
    (void)snprintf(c->addr, sizeof(c->addr), "%s", m->address);
    return c;
}

static void out_pop(struct rdv_conn *c)
{
    struct rdv_out *o = c->out_first;

    c->out_first = o->next;
    if (!c->out_first)
        c->out_last = NULL;
    c->n_out--;
    rdv_msg_unref(o->msg);
    mem_free(o);
}

void rdv_conn_free(struct rdv_conn *c)
{
    if (!c)
        return;
    while (c->out_first)
        out_pop(c);
    frame_release(&c->in);
    mem_free(c);
}

static struct rdv_out *out_push(struct rdv_conn *c)
{
    struct rdv_out *o = c->n_out < c->max_out ? mem_zalloc(sizeof(*o)) : NULL;

    if (!o) {
        c->is_dead = true;
        return NULL;
    }
    if (c->out_last)
        c->out_last->next = o;
    else
        c->out_first = o;
    c->out_last = o;
    c->n_out++;
    return o;
}

void rdv_conn_send(struct rdv_conn *c, enum rdv_type type, struct rdv_msg *msg)
{
    struct rdv_out *o = out_push(c);

    if (!o)
        return;
    frame_put_header(o->head, (uint8_t)type, msg ? msg->n : 0);
    frame_make_tag(&c->in.send, o->head, msg ? msg->data : NULL, msg ? msg->n : 0,
                   msg ? msg->digest : NULL, o->tag);
    o->msg = msg;
    if (msg)
        msg->n_refs++;
    rdv_conn_flush(c);
}

void rdv_conn_refuse(struct rdv_conn *c,
                     uint32_t place,
                     uint32_t pass,
                     enum rdv_code code,
                     const char *text)
{
    size_t n = strnlen(text, RDV_MAX_TEXT_BYTES);
    struct rdv_msg *msg = rdv_msg_new((uint32_t)(RDV_REFUSED_BYTES + n));

    if (!msg) {
        c->is_dead = true;
        return;
    }
    bytes_store_u32(msg->data, place);
    bytes_store_u32(msg->data + 4, pass);
    bytes_store_u32(msg->data + 8, (uint32_t)code);
    memcpy(msg->data + RDV_REFUSED_BYTES, text, n);
    rdv_msg_seal(msg);
    rdv_conn_send(c, RDV_REFUSED, msg);
    rdv_msg_unref(msg);
}

void rdv_conn_join(struct rdv_conn *c, uint32_t place, uint32_t size)
{
    c->is_member = true;
    c->place = place;
    c->max_out = MAX_OUT + size;
}

void rdv_conn_drain(struct rdv_conn *c, uint64_t now_ns)
{
    c->is_draining = true;
    c->deadline_ns = now_ns + RDV_JOIN_MS * NS_PER_MS;
    rdv_conn_flush(c);
}

/* The unsent parts of o, as at most three pieces. */
static int out_pieces(struct rdv_out *o, struct iovec iov[3])
{
    struct {
        uint8_t *p;
        size_t n;
    } part[3] = {{o->head, sizeof(o->head)},
                 {o->msg ? o->msg->data : NULL, o->msg ? o->msg->n : 0},
                 {o->tag, sizeof(o->tag)}};
    size_t skip = o->at;
    int n = 0;

    for (int i = 0; i < 3; i++) {
        if (skip < part[i].n)
            iov[n++] = (struct iovec){part[i].p + skip, part[i].n - skip};
        skip -= skip < part[i].n ? skip : part[i].n;
    }
    return n;
}

void rdv_conn_flush(struct rdv_conn *c)
{
    while (c->out_first && !c->is_dead) {
        struct rdv_out *o = c->out_first;
        struct iovec iov[3];
        struct msghdr mh = {.msg_iov = iov};

        mh.msg_iovlen = (size_t)out_pieces(o, iov);
        ssize_t k = sendmsg(c->in.fd, &mh, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0) {
            c->is_dead = errno != EAGAIN;
            return;
        }
        o->at += (size_t)k;
        if (o->at == sizeof(o->head) + (o->msg ? o->msg->n : 0) + sizeof(o->tag))
            out_pop(c);
    }
    if (c->is_draining && !c->is_dead)
        (void)shutdown(c->in.fd,
                       SHUT_WR); /* a peer that has closed is freed at its EOF */
}

uint32_t rdv_conn_events(const struct rdv_conn *c)
{
    return EPOLLIN | (c->out_first ? EPOLLOUT : 0u);
}

void rdv_conn_read(struct rdv_conn *c, rdv_frame_fn on_frame, void *arg)
{
    struct frame f;
    int rc;

    frame_readable(&c->in);
    while (!c->is_dead && (rc = frame_recv(&c->in, &f)) != 0) {
        if (rc < 0)
            c->is_dead = true;
        else if (!c->is_draining)
            on_frame(arg, c, &f);
    }
}
