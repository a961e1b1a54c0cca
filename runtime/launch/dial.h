/* SPDX-License-Identifier: Apache-2.0 */
/* Connects to a hub or a serving agent without blocking the caller: a thread does name
 * resolution, connect and handshake. */
#ifndef RUNTIME_LAUNCH_DIAL_H
#define RUNTIME_LAUNCH_DIAL_H

#include "runtime/wire/auth.h"

struct dial;
struct dial_to {
    const char *host;
    uint16_t port;
    enum auth_role mine, theirs;
    bool once; /* otherwise temporary errors are retried until the deadline */
};
/* id is copied. */
int dial_start(const struct dial_to *to,
               const struct auth_id *id,
               uint64_t deadline_ns,
               struct dial **ret,
               struct err *err);
int dial_fd(const struct dial *d); /* readable when the thread has a result */
/* At any time: gives the attempt up and frees d. Never blocks. */
void dial_abandon(struct dial *d);
/* After dial_fd was readable: 0 with a connected, authenticated, non-blocking
 * socket, or -errno with err. Frees d. */
int dial_end(struct dial *d, int *ret_fd, struct auth_session *ret, struct err *err);

#endif
