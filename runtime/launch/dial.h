/* SPDX-License-Identifier: Apache-2.0 */
/* Reaches a hub or a serving agent without blocking the caller: name resolution,
 * connect and handshake are done by a thread. */
#ifndef RUNTIME_LAUNCH_DIAL_H
#define RUNTIME_LAUNCH_DIAL_H

#include "runtime/rendezvous/auth.h"

struct dial;
struct dial_to {
    const char *host;
    uint16_t port;
    enum auth_role mine, theirs;
    bool once; /* else what time may heal is tried again until the deadline */
};
/* id is copied. */
int dial_start(const struct dial_to *to,
               const struct auth_id *id,
               uint64_t deadline_ns,
               struct dial **ret,
               struct err *err);
int dial_fd(const struct dial *d); /* readable when the thread has an answer */
/* After dial_fd was readable: 0 with a connected, authenticated, non-blocking socket,
 * or the failure. Frees d. */
/* At any time: nobody waits for it any more. Never blocks. */
void dial_abandon(struct dial *d);
int dial_end(struct dial *d, int *ret_fd, struct auth_session *ret, struct err *err);

#endif
