/* SPDX-License-Identifier: Apache-2.0 */
/* One accepted connection, up to an authenticated channel. Never blocks. */
#ifndef RUNTIME_LAUNCH_CONN_H
#define RUNTIME_LAUNCH_CONN_H

#include "runtime/launch/channel.h"
#include "runtime/rendezvous/auth_wire.h"

#define CONN_ADDRESS_BYTES 64

enum phase { PHASE_HELLO, PHASE_PROOF, PHASE_OPEN };

struct conn_kind { /* who we are, whom we expect, what they may send */
    enum auth_role mine, theirs;
    enum auth_role or_theirs; /* another one that is welcome, 0: none; once one has
                                 introduced itself, theirs is it */
    size_t max_payload_bytes;
};
struct conn {
    struct conn_kind kind;
    int fd; /* while shaking hands; later the channel's */
    enum phase phase;
    uint64_t deadline_ns; /* of the handshake */
    uint8_t hello[AUTH_HELLO_BYTES], reply[AUTH_REPLY_BYTES], proof[AUTH_PROOF_BYTES];
    size_t n;               /* bytes of the present handshake message */
    struct channel channel; /* in PHASE_OPEN */
    int64_t worker;         /* -1: has not introduced itself */
    bool is_closing, is_refused;
    bool is_here;                     /* and has been taken into the present world */
    char address[CONN_ADDRESS_BYTES]; /* of the peer */
};

struct conn *conn_new(int fd, const struct conn_kind *kind); /* takes over fd, also on
                                                                failure */
void conn_free(struct conn *c);
/* Goes on with the handshake as far as bytes are there. 1: the channel is open now; 0:
 * more to come; -errno, with a sentence where the peer is at fault. */
int conn_shake(struct conn *c, const struct auth_id *id, struct err *err);
/* Our end of the connection, by which other workers can reach this host; left as it is
 * for a connection from this host itself. */
void conn_own_address(const struct conn *c, char *ret, size_t size_bytes);

#endif
