/* SPDX-License-Identifier: Apache-2.0 */
/* The server's part of the handshake of wire/auth.h over a non-blocking socket. A
 * client that connects and sends nothing costs one descriptor for ten seconds and
 * blocks no other. Called by hub.c and serve.c. */
#include "runtime/launch/conn.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"

#define HANDSHAKE_NS (10 * NS_PER_S)

/* "::ffff:10.0.0.1" of a dual-stack socket -> "10.0.0.1". */
static void address_make_plain(char *s)
{
    if (!strncmp(s, "::ffff:", 7) && strchr(s, '.'))
        memmove(s, s + 7, strlen(s + 7) + 1);
}

struct conn *conn_new(int fd, const struct conn_kind *kind)
{
    struct conn *c = mem_zalloc(sizeof(*c));
    if (!c) {
        fd_close(&fd);
        return NULL;
    }
    c->fd = fd;
    c->kind = *kind;
    c->worker = -1;
    c->deadline_ns = clock_now_ns() + HANDSHAKE_NS;
    if (tcp_peer_addr(fd, c->address, sizeof(c->address)) < 0)
        (void)snprintf(c->address, sizeof(c->address), "127.0.0.1");
    address_make_plain(c->address);
    return c;
}

void conn_free(struct conn *c)
{
    if (c->phase == PHASE_OPEN)
        channel_release(&c->channel);
    else
        fd_close(&c->fd);
    mem_free(c);
}

void conn_own_address(const struct conn *c, char *ret, size_t size_bytes)
{
    char own[CONN_ADDRESS_BYTES];
    if (tcp_local_addr(c->channel.fd, own, sizeof(own)) < 0)
        return;
    address_make_plain(own);
    if (strncmp(own, "127.", 4) != 0 && strcmp(own, "::1") != 0)
        (void)snprintf(ret, size_bytes, "%s", own);
}

/* Reads up to want bytes of a handshake message. 1: complete, 0: incomplete, or
 * -errno. */
static int conn_read_part(struct conn *c, uint8_t *p, size_t want)
{
    ssize_t n = read(c->fd, p + c->n, want - c->n);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    if (n == 0)
        return -EPIPE;
    c->n += (size_t)n;
    return c->n == want;
}

static int conn_shake_hello(struct conn *c, const struct auth_id *id, struct err *err)
{
    uint8_t nonce[AUTH_NONCE_BYTES];
    int rc = conn_read_part(c, c->hello, sizeof(c->hello));
    if (rc <= 0)
        return rc;
    if ((rc = random_bytes(nonce, sizeof(nonce))) < 0)
        return rc;
    if (c->kind.or_theirs && auth_wire_role(c->hello) == c->kind.or_theirs)
        c->kind.theirs = c->kind.or_theirs;
    rc = auth_wire_reply(id, c->kind.mine, c->kind.theirs, c->hello, nonce, c->reply,
                         err);
    /* 76 bytes fit the empty buffer of a new connection */
    if (write(c->fd, c->reply, sizeof(c->reply)) != (ssize_t)sizeof(c->reply)
        && rc == 0)
        rc = -EPIPE;
    c->n = 0;
    c->phase = PHASE_PROOF;
    return rc;
}

static int conn_shake_proof(struct conn *c, const struct auth_id *id, struct err *err)
{
    struct auth_session session;
    int rc = conn_read_part(c, c->proof, sizeof(c->proof));
    if (rc <= 0)
        return rc;
    rc = auth_wire_check(id, c->hello, c->reply, c->proof, err);
    if (rc < 0)
        return rc;
    auth_wire_session(id, c->hello, c->reply, true, &session);
    channel_init(&c->channel, c->fd, &session, c->kind.max_payload_bytes,
                 clock_now_ns());
    memset(&session, 0, sizeof(session));
    c->phase = PHASE_OPEN;
    c->deadline_ns = UINT64_MAX;
    return 1;
}

int conn_shake(struct conn *c, const struct auth_id *id, struct err *err)
{
    return c->phase == PHASE_HELLO ? conn_shake_hello(c, id, err)
                                   : conn_shake_proof(c, id, err);
}
