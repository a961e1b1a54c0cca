/* SPDX-License-Identifier: Apache-2.0 */
/* Reaches the hub without blocking the caller: name resolution and connect are done by
 * a thread. */
#ifndef RUNTIME_LAUNCH_DIAL_H
#define RUNTIME_LAUNCH_DIAL_H

#include "runtime/rendezvous/auth.h"

struct dial;
/* Tries host:port until deadline_ns. id and what it points to must live until dial_end.
 */
int dial_start(const char *host,
               uint16_t port,
               const struct auth_id *id,
               uint64_t deadline_ns,
               struct dial **ret,
               struct err *err);
int dial_fd(const struct dial *d); /* readable when the thread has an answer */
/* After dial_fd was readable: 0 with a connected, authenticated, non-blocking socket,
 * or the failure. Frees d. */
int dial_end(struct dial *d, int *ret_fd, struct auth_session *ret, struct err *err);

#endif
