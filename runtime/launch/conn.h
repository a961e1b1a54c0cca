/* SPDX-License-Identifier: Apache-2.0 */
/* The connection of an agent at the hub. */
#ifndef RUNTIME_LAUNCH_CONN_H
#define RUNTIME_LAUNCH_CONN_H

#include "runtime/launch/channel.h"
#include "runtime/wire/accept.h"

struct conn {
    struct channel channel;
    int64_t worker; /* -1: no HELLO was received */
    bool is_closing, is_refused;
    bool is_here;                     /* is a member of the current world */
    char address[DOOR_ADDRESS_BYTES]; /* of the peer */
};

/* Takes ownership of m->fd, also on failure. NULL: out of memory. */
struct conn *conn_new(const struct admitted *m, size_t max_payload_bytes);
void conn_free(struct conn *c);
/* Our address on this connection, by which other workers can reach this host. ret is
 * unchanged for a connection from this host itself. */
void conn_own_address(const struct conn *c, char *ret, size_t size_bytes);

#endif
