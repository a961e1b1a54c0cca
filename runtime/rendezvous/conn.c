/* SPDX-License-Identifier: Apache-2.0 */
/* The transport of one connection of the server. Input is a buffer that grows to the
 * size that the stage requires next: 76 bytes of hello, 32 of proof, 8 of header, then
 * payload and MAC. Memory for a payload is allocated only after the handshake, within
 * the bounds of rdv_wire.c. Output is a queue of frames that share their payload.
 *
 * A failure only marks the connection dead; server.c frees it. Refused peers are
 * drained rather than closed, because closing a socket with unread input sends a reset,
 * which can overtake the refusal. */
#include "runtime/rendezvous/conn.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/wire/bytes.h"

#define MAX_OUT 16 /* frames that a peer has not read; an honest peer never has more */
#define READS_A_TURN                                                                   \
    8 /* per turn of the server's loop, for fairness between connections */

struct rdv_out {
    struct rdv_out *next;
    struct rdv_msg *msg;
    size_t n_head, n_mac, at; /* at: bytes of head, payload and MAC already sent */
    uint8_t head[AUTH_REPLY_BYTES], mac[RDV_MAC_BYTES];
};

struct rdv_conn *rdv_conn_new(int fd, uint64_t now_ns)
{
    struct rdv_conn *c = mem_zalloc(sizeof(*c));

    if (!c)
        return NULL;
    c->fd = fd;
    c->in_need = AUTH_HELLO_BYTES;
    c->deadline_ns = now_ns + RDV_HANDSHAKE_MS * NS_PER_MS;
    if (tcp_peer_addr(fd, c->addr, sizeof(c->addr)) < 0)
        memcpy(c->addr, "unknown", sizeof("unknown"));
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
    fd_close(&c->fd);
    mem_free(c->in);
    memset(&c->session, 0, sizeof(c->session));
    mem_free(c);
}

static struct rdv_out *out_push(struct rdv_conn *c)
{
    struct rdv_out *o = c->n_out < MAX_OUT ? mem_zalloc(sizeof(*o)) : NULL;

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
    uint8_t empty[SHA256_BYTES];

    if (!o)
        return;
    rdv_header(type, msg ? msg->n : 0, o->head);
    if (!msg)
        sha256_digest("", 0, empty);
    rdv_mac_send(&c->session, o->head, msg ? msg->digest : empty, o->mac);
    o->n_head = RDV_HEADER_BYTES;
    o->n_mac = RDV_MAC_BYTES;
    o->msg = msg;
    if (msg)
        msg->n_refs++;
    rdv_conn_flush(c);
}

void rdv_conn_refuse(struct rdv_conn *c, enum rdv_code code, const char *text)
{
    size_t n = strnlen(text, RDV_MAX_TEXT_BYTES);
    struct rdv_msg *msg = rdv_msg_new((uint32_t)(4 + n));

    if (!msg) {
        c->is_dead = true;
        return;
    }
    bytes_store_u32(msg->data, (uint32_t)code);
    memcpy(msg->data + 4, text, n);
    rdv_msg_seal(msg);
    rdv_conn_send(c, RDV_REFUSED, msg);
    rdv_msg_unref(msg);
}

void rdv_conn_drain(struct rdv_conn *c, uint64_t now_ns)
{
    c->stage = RDV_DRAIN;
    c->deadline_ns = now_ns + RDV_HANDSHAKE_MS * NS_PER_MS;
    rdv_conn_flush(c);
}

/* The unsent parts of o, as at most three pieces. */
static int out_pieces(struct rdv_out *o, struct iovec iov[3])
{
    struct {
        uint8_t *p;
        size_t n;
    } part[3] = {{o->head, o->n_head},
                 {o->msg ? o->msg->data : NULL, o->msg ? o->msg->n : 0},
                 {o->mac, o->n_mac}};
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
        ssize_t k = sendmsg(c->fd, &mh, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0) {
            c->is_dead = errno != EAGAIN;
            return;
        }
        o->at += (size_t)k;
        if (o->at == o->n_head + (o->msg ? o->msg->n : 0) + o->n_mac)
            out_pop(c);
    }
    if (c->stage == RDV_DRAIN && !c->is_dead)
        (void)shutdown(c->fd, SHUT_WR); /* a peer that has closed is freed at its EOF */
}

uint32_t rdv_conn_events(const struct rdv_conn *c)
{
    return EPOLLIN | (c->out_first ? EPOLLOUT : 0u);
}

static bool in_reserve(struct rdv_conn *c)
{
    if (c->in_need <= c->in_cap)
        return true;

    uint8_t *p = mem_realloc_array(c->in, c->in_need, 1);
    if (!p)
        return false;
    c->in = p;
    c->in_cap = c->in_need;
    return true;
}

static void conn_expect(struct rdv_conn *c, enum rdv_stage stage, size_t need)
{
    c->stage = stage;
    c->in_n = 0;
    c->in_need = need;
}

static void got_hello(struct rdv_conn *c, const struct auth_id *id, uint64_t now_ns)
{
    uint8_t nonce[AUTH_NONCE_BYTES];

    if (random_bytes(nonce, sizeof(nonce)) < 0) {
        c->is_dead = true;
        return;
    }
    memcpy(c->hello, c->in, sizeof(c->hello));
    int rc = auth_wire_reply(id, ROLE_RENDEZVOUS_SERVER, ROLE_RENDEZVOUS_CLIENT,
                             c->hello, nonce, c->reply, NULL);
    struct rdv_out *o = out_push(c);
    if (!o)
        return;
    memcpy(o->head, c->reply, sizeof(c->reply));
    o->n_head = sizeof(c->reply);
    conn_expect(c, RDV_PROOF, AUTH_PROOF_BYTES);
    if (rc)
        rdv_conn_drain(c, now_ns);
    else
        rdv_conn_flush(c);
}

static void got_proof(struct rdv_conn *c, const struct auth_id *id)
{
    if (auth_wire_check(id, c->hello, c->reply, c->in, NULL)) {
        /* The peer has the reason: our reply's MAC did not match its token. */
        c->is_dead = true;
        return;
    }
    auth_wire_session(id, c->hello, c->reply, true, &c->session);
    conn_expect(c, RDV_HEADER, RDV_HEADER_BYTES);
}

static void got_header(struct rdv_conn *c)
{
    enum rdv_type type;
    uint32_t length;

    memcpy(c->header, c->in, sizeof(c->header));
    if (rdv_header_from_member(c->header, &type, &length, NULL))
        c->is_dead = true;
    else
        conn_expect(c, RDV_BODY, (size_t)length + RDV_MAC_BYTES);
}

static void got_body(struct rdv_conn *c, rdv_frame_fn on_frame, void *arg)
{
    uint32_t n = (uint32_t)(c->in_need - RDV_MAC_BYTES);

    if (rdv_mac_check(&c->session, c->header, c->in, n, c->in + n, NULL)) {
        c->is_dead = true;
        return;
    }
    conn_expect(c, RDV_HEADER, RDV_HEADER_BYTES); /* on_frame may change the stage */
    on_frame(arg, c, (enum rdv_type)c->header[0], c->in, n);
}

static void conn_advance(struct rdv_conn *c,
                         const struct auth_id *id,
                         uint64_t now_ns,
                         rdv_frame_fn on_frame,
                         void *arg)
{
    switch (c->stage) {
    case RDV_HELLO:
        got_hello(c, id, now_ns);
        break;
    case RDV_PROOF:
        got_proof(c, id);
        break;
    case RDV_HEADER:
        got_header(c);
        break;
    case RDV_BODY:
        got_body(c, on_frame, arg);
        break;
    case RDV_DRAIN:
        c->in_n = 0;
        break;
    }
}

void rdv_conn_read(struct rdv_conn *c,
                   const struct auth_id *id,
                   uint64_t now_ns,
                   rdv_frame_fn on_frame,
                   void *arg)
{
    for (int turn = 0; turn < READS_A_TURN && !c->is_dead; turn++) {
        if (!in_reserve(c)) {
            c->is_dead = true;
            return;
        }
        ssize_t k = recv(c->fd, c->in + c->in_n, c->in_need - c->in_n, MSG_DONTWAIT);
        if (k < 0 && errno == EAGAIN)
            return;
        if (k == 0 || (k < 0 && errno != EINTR)) {
            c->is_dead = true;
            return;
        }
        if (k > 0)
            c->in_n += (size_t)k;
        if (c->in_n == c->in_need || c->stage == RDV_DRAIN)
            conn_advance(c, id, now_ns, on_frame, arg);
    }
}
