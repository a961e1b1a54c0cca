/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors: everything CLOEXEC, every wait with a deadline (absolute, monotonic ns).
 */
#ifndef RUNTIME_BASE_FD_H
#define RUNTIME_BASE_FD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "runtime/base/err.h"

void fd_close(
    int *fd); /* closes if >= 0, leaves -1; for CLEANUP(fd_close) int fd = -1 */
void fd_close_from(int first);    /* first and all above */
void fd_close_others(int fd);     /* all but fd; async-signal-safe */
int fd_nonblock(int fd, bool on); /* 0 or -errno */
int fd_cloexec(int fd);
/* Whole buffer or failure: -ETIMEDOUT at the deadline, -EPIPE when the peer has closed.
 * Works for blocking and non-blocking descriptors; sockets raise no SIGPIPE. */
int fd_read_full(int fd, void *p, size_t n, uint64_t deadline_ns);
int fd_write_full(int fd, const void *p, size_t n, uint64_t deadline_ns);
/* Waits for poll events; > 0 revents, -ETIMEDOUT, -errno. */
int fd_wait(int fd, short events, uint64_t deadline_ns);

/* A whole file, at most max_bytes, NUL-terminated; caller frees *ret_text with
 * mem_free. */
int fd_read_file(const char *path,
                 size_t max_bytes,
                 char **ret_text,
                 size_t *ret_n,
                 struct err *err);
/* Writes path by temporary file, fsync and rename, with the given mode. */
int fd_write_file(
    const char *path, const void *p, size_t n, mode_t mode, struct err *err);

/* TCP. Listens on addr ("0.0.0.0", "::", "127.0.0.1", a name) and port (0: any); dual
 * stack for "::", and IPv4 alone where the kernel has no IPv6. CLOEXEC, non-blocking;
 * sockets of tcp_accept have TCP_NODELAY. */
int tcp_listen(
    const char *addr, uint16_t port, int *ret_fd, uint16_t *ret_port, struct err *err);
/* Resolves and connects, trying each address until the deadline; retries ECONNREFUSED
 * and resolution failures with back-off when retry is true. Returns a non-blocking
 * socket. */
int tcp_connect(const char *host,
                uint16_t port,
                uint64_t deadline_ns,
                bool retry,
                int *ret_fd,
                struct err *err);
/* Begins to connect to a numeric address. The socket is non-blocking: once it can be
 * written, tcp_connect_result says whether it is connected. */
int tcp_connect_begin(const char *address, uint16_t port, int *ret_fd, struct err *err);
int tcp_connect_result(int fd); /* 0 or -errno */
/* Keeps a free port of all addresses for another process until ret_fd is closed. Bound
 * with SO_REUSEADDR but not listening: on Linux a process that also sets SO_REUSEADDR can
 * bind the port and listen, while the kernel gives it to no connection and to no bind to
 * port 0. */
int tcp_hold(int *ret_fd, uint16_t *ret_port, struct err *err);
int tcp_accept(int listen_fd, int *ret_fd); /* -EAGAIN when none waits */
/* "10.0.0.1" or "fe80::1" of the peer / of our end. */
int tcp_peer_addr(int fd, char *buf, size_t size_bytes);
int tcp_local_addr(int fd, char *buf, size_t size_bytes);

#endif
