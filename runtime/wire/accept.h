/* SPDX-License-Identifier: Apache-2.0 */
/* The server's part of the handshake of auth.h, for many strangers at once (door.h). */
#ifndef RUNTIME_WIRE_ACCEPT_H
#define RUNTIME_WIRE_ACCEPT_H

#include "runtime/wire/auth.h"
#include "runtime/wire/door.h"

struct accept_kind {
    const char *name; /* of the listener, for logs */
    enum auth_role mine, theirs;
    enum auth_role or_theirs; /* another role that is accepted; 0: none */
    /* Brings the token of acceptor_serve's id up to date, before each hello and each proof
     * is checked against it. Negative: the client is refused because of err. NULL: the
     * token does not change. */
    int (*refresh)(void *arg, struct err *err);
};

/* A connection whose handshake has succeeded. */
struct admitted {
    int fd; /* non-blocking; the receiver owns it */
    enum auth_role role;
    uint32_t number; /* that the client gave to auth_client */
    bool is_unix;
    char address[DOOR_ADDRESS_BYTES];
    struct auth_session session;
};

struct acceptor {
    struct accept_kind kind;
    struct door *door; /* NULL: closed; for door_fd, door_next_ns */
    /* during acceptor_serve */
    const struct auth_id *id;
    void (*admit)(void *arg, const struct admitted *m);
    void *arg;
};

/* a may not move afterwards. */
int acceptor_open(struct acceptor *a, const struct accept_kind *kind, struct err *err);
/* Advances all handshakes and calls admit for each that succeeds. id may differ from call
 * to call. arg: for admit and refresh. */
void acceptor_serve(struct acceptor *a,
                    const struct auth_id *id,
                    void (*admit)(void *arg, const struct admitted *m),
                    void *arg);
void acceptor_close(struct acceptor *a); /* see door_close; also when it is not open */

#endif
