/* SPDX-License-Identifier: Apache-2.0 */
/* Mutual authentication of every connection that we open: HMAC-SHA-256 over both
 * nonces, both roles, the job and its generation, with the job token as key; and the
 * MAC of control frames.
 *
 *   C->S  hello:  "HVD1" version role_c number_c job_hash generation nonce_c
 *   S->C  reply:  "HVD1" version role_s status generation nonce_s mac_s
 *   C->S  proof:  mac_c
 *
 *   mac_s = HMAC(token, "S" | hello | reply up to mac_s)
 *   mac_c = HMAC(token, "C" | hello | reply up to mac_s)
 *
 * A peer of another job, generation, version or token is refused, and the error message
 * names which of the four differs. The session keys of frames are HMAC(token, "KC" |
 * hello | reply up to mac_s) and the same with "KS", one for each direction.
 * auth_wire.h has the byte layout. */
#ifndef RUNTIME_WIRE_AUTH_H
#define RUNTIME_WIRE_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/contract/token.h"

#define AUTH_VERSION 3

/* Covered by the MAC: a connection for one purpose is invalid for another. */
enum auth_role {
    ROLE_RENDEZVOUS_CLIENT = 1,
    ROLE_RENDEZVOUS_SERVER,
    ROLE_CONTROL,
    ROLE_COORDINATOR,
    ROLE_DATA,
    ROLE_SHM,
    ROLE_AGENT,
    ROLE_AGENT_HUB,
    ROLE_REMOTE_LAUNCHER,
    ROLE_AGENT_SERVE,
    ROLE_SHELL,
    ROLE_READER, /* of the live report (live/live_query.h) */
};

struct auth_id {
    const struct token *token;
    const char *job_id;
    uint32_t generation;
};
struct auth_session { /* keys of one connection */
    uint8_t send_key[32], recv_key[32];
};
void auth_session_wipe(struct auth_session *s); /* for CLEANUP */

/* What a client proves and what it requires of its server. The caller keeps all that the
 * pointers name. */
struct auth_claim {
    const struct auth_id *id;
    enum auth_role mine, theirs;
    uint32_t number;      /* our rank, or 0 where the server does not use it */
    uint64_t deadline_ns; /* absolute, monotonic; of the whole attempt */
    /* Asked every 2 s while the peer is silent: 0, or why the attempt ends. NULL: never. */
    int (*interrupted)(void *arg, struct err *err);
    void *arg;
};
struct auth_server {
    const char *host; /* a name or an address */
    uint16_t port;
    bool is_patient; /* waits for a server that does not listen yet (tcp_connect) */
};

/* The client's part; accept.h has the server's. Blocks until the deadline. 0; -EACCES:
 * wrong token; -ESTALE: other generation; -EPROTO: other job, version or role, or not our
 * protocol; -ETIMEDOUT; -errno; what interrupted returned. ret may be NULL. The caller
 * keeps fd and closes it on failure. */
int auth_client(int fd,
                const struct auth_claim *claim,
                struct auth_session *ret,
                struct err *err);
/* Connects and authenticates. A server with too many strangers may close a connection
 * during the handshake: then it is tried again, unless the server has gone. The caller
 * owns the socket, which is non-blocking. Errors: as auth_client and tcp_connect. */
int auth_connect(const struct auth_server *server,
                 const struct auth_claim *claim,
                 int *ret_fd,
                 struct auth_session *ret,
                 struct err *err);

#endif
