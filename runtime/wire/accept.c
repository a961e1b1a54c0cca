/* SPDX-License-Identifier: Apache-2.0 */
/* Messages and checks are in auth_wire.c. A client that closes without a byte has only
 * tested the port, and is not logged. Called by hub.c, serve.c, rendezvous/server.c,
 * control/join.c, backend/cpu/net_join.c and shm_join.c. */
#include "runtime/wire/accept.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"
#include "runtime/wire/auth_wire.h"

struct handshake {
    bool has_hello;
    enum auth_role role;
    size_t n; /* bytes of the current message */
    uint8_t hello[AUTH_HELLO_BYTES], reply[AUTH_REPLY_BYTES], proof[AUTH_PROOF_BYTES];
};

/* 1: the message is complete; 0: it is not; or -errno. */
static int
handshake_read(struct handshake *h, struct stranger *s, uint8_t *p, size_t size)
{
    ssize_t n = read(s->fd, p + h->n, size - h->n);

    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    if (n == 0)
        return -EPIPE;
    s->has_sent = true;
    h->n += (size_t)n;
    return h->n == size;
}

static int acceptor_refresh(struct acceptor *a, struct err *err)
{
    return a->kind.refresh ? a->kind.refresh(a->arg, err) : 0;
}

static int handshake_take_hello(struct acceptor *a, struct stranger *s, struct err *err)
{
    struct handshake *h = s->data;
    uint8_t nonce[AUTH_NONCE_BYTES];
    int rc = handshake_read(h, s, h->hello, sizeof(h->hello));
    bool is_hello = auth_wire_is_hello(h->hello, h->n);

    if (rc < 0 || (rc == 0 && is_hello))
        return rc;
    rc = is_hello ? acceptor_refresh(a, err) : 0; /* others get no MAC */
    if (rc < 0)
        return rc;
    rc = random_bytes(nonce, sizeof(nonce));
    if (rc < 0)
        return err_errno(err, -rc, "no random bytes from the system");
    h->role = a->kind.theirs;
    if (a->kind.or_theirs && auth_wire_role(h->hello) == a->kind.or_theirs)
        h->role = a->kind.or_theirs;
    rc = auth_wire_reply(a->id, a->kind.mine, h->role, h->hello, nonce, h->reply, err);
    /* it fits the empty buffer of a new connection */
    if (fd_write_full(s->fd, h->reply, sizeof(h->reply), 0) < 0 && rc == 0)
        rc = -EPIPE;
    h->n = 0;
    h->has_hello = true;
    return rc;
}

static int handshake_take_proof(struct acceptor *a, struct stranger *s, struct err *err)
{
    struct handshake *h = s->data;
    int rc = handshake_read(h, s, h->proof, sizeof(h->proof));
    struct admitted m;

    if (rc <= 0)
        return rc;
    rc = acceptor_refresh(a, err);
    if (rc < 0)
        return rc;
    rc = auth_wire_check(a->id, h->hello, h->reply, h->proof, err);
    if (rc < 0)
        return rc;
    m = (struct admitted){
        .role = h->role, .number = auth_wire_number(h->hello), .is_unix = s->is_unix};
    (void)snprintf(m.address, sizeof(m.address), "%s", s->address);
    auth_wire_session(a->id, h->hello, h->reply, true, &m.session);
    m.fd = stranger_take(s);
    a->admit(a->arg, &m);
    auth_session_wipe(&m.session);
    return 0;
}

static int acceptor_step(void *arg, struct stranger *s, struct err *err)
{
    struct acceptor *a = arg;
    struct handshake *h = s->data;
    int rc;

    rc = h->has_hello ? handshake_take_proof(a, s, err)
                      : handshake_take_hello(a, s, err);
    if (rc < 0 && !err->code && s->has_sent)
        (void)err_set(err, rc, "peer closed during the handshake");
    return rc;
}

int acceptor_open(struct acceptor *a, const struct accept_kind *kind, struct err *err)
{
    struct door_kind door = {.name = kind->name,
                             .data_bytes = sizeof(struct handshake),
                             .step = acceptor_step};

    *a = (struct acceptor){.kind = *kind};
    return door_open(&door, &a->door, err);
}

void acceptor_serve(struct acceptor *a,
                    const struct auth_id *id,
                    void (*admit)(void *arg, const struct admitted *m),
                    void *arg)
{
    a->id = id;
    a->admit = admit;
    a->arg = arg;
    door_serve(a->door, a, clock_now_ns());
}

void acceptor_close(struct acceptor *a)
{
    door_close(a->door);
    a->door = NULL;
}
