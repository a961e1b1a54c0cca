/* SPDX-License-Identifier: Apache-2.0 */
/* An accepted connection, from accept to an authenticated channel. Never blocks. */
#ifndef RUNTIME_LAUNCH_CONN_H
#define RUNTIME_LAUNCH_CONN_H

#include "runtime/launch/channel.h"
#include "runtime/wire/auth_wire.h"

#define CONN_ADDRESS_BYTES 64

enum phase { PHASE_HELLO, PHASE_PROOF, PHASE_OPEN };

struct conn_kind { /* our role, the role of the peer, and the size of its messages */
    enum auth_role mine, theirs;
    /* alternative role of the peer, 0: none; theirs is set to the actual one in the
     * handshake */
    enum auth_role or_theirs;
    size_t max_payload_bytes;
};
struct conn {
    struct conn_kind kind;
    int fd; /* during the handshake; then owned by the channel */
    enum phase phase;
    uint64_t deadline_ns; /* of the handshake */
    uint8_t hello[AUTH_HELLO_BYTES], reply[AUTH_REPLY_BYTES], proof[AUTH_PROOF_BYTES];
    size_t n;               /* bytes received of the current handshake message */
    struct channel channel; /* in PHASE_OPEN */
    int64_t worker;         /* -1: no HELLO was received */
    bool is_closing, is_refused;
    bool is_here;                     /* is a member of the current world */
    char address[CONN_ADDRESS_BYTES]; /* of the peer */
};

/* takes ownership of fd, also on failure */
struct conn *conn_new(int fd, const struct conn_kind *kind);
void conn_free(struct conn *c);
/* Continues the handshake with the bytes that are available. 1: the channel is open; 0:
 * incomplete; -errno, with err if the peer is at fault. */
int conn_shake(struct conn *c, const struct auth_id *id, struct err *err);
/* Our address on this connection, by which other workers can reach this host. ret is
 * unchanged for a connection from this host itself. */
void conn_own_address(const struct conn *c, char *ret, size_t size_bytes);

#endif
