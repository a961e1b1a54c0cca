/* SPDX-License-Identifier: Apache-2.0 */
/* Abstract Unix sockets: names that exist only in the network namespace of this machine,
 * and only while the socket is open. Who may connect is for the caller to check. Sockets
 * are CLOEXEC and non-blocking. */
#ifndef RUNTIME_BASE_UNIX_H
#define RUNTIME_BASE_UNIX_H

#include <sys/socket.h>

#include "runtime/base/err.h"

#define UNIX_NAME_BYTES 40 /* "hvd-" and 32 hex digits */

/* Listens at a new random name, which is written to ret_name without its leading NUL.
 * 0 or -errno with err. */
int unix_listen(int *ret_fd, char ret_name[UNIX_NAME_BYTES], struct err *err);
/* Listens at this name. -EADDRINUSE: somebody else does. */
int unix_listen_at(const char *name, int *ret_fd, struct err *err);
/* -EAGAIN: the backlog of the listener is full; -ECONNREFUSED: nobody listens at name. */
int unix_connect(const char *name, int *ret_fd, struct err *err);
/* The same with SOCK_SEQPACKET: what is sent at once is received at once. */
int unix_listen_packets(int *ret_fd, char ret_name[UNIX_NAME_BYTES], struct err *err);
int unix_connect_packets(const char *name, int *ret_fd, struct err *err);
/* The process and user at the other end, as they were when it connected or, for the end
 * that connected, when the other one listened. 0 or -errno. */
int unix_read_peer(int fd, struct ucred *ret);

#endif
