/* SPDX-License-Identifier: Apache-2.0 */
/* TCP half of fd.h: listen, hold a port, connect with retry, accept, addresses. Every
 * socket is CLOEXEC and non-blocking from birth (accept4, SOCK_CLOEXEC: Linux 2.6.28,
 * older than glibc 2.17). */
#include <errno.h>
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"

#define LISTEN_BACKLOG 1024
#define RETRY_FIRST_MS 20u
#define RETRY_MAX_MS   1000u
#define ONE_ADDRESS_MS                                                                 \
    5000u /* an address that drops packets must not use up the deadline */

static void addrinfo_freep(struct addrinfo **ai)
{
    if (*ai)
        freeaddrinfo(*ai);
}

/* 0, or -EAI_* numbers mapped to -EHOSTUNREACH; text in err. */
static int addr_resolve(
    const char *host, uint16_t port, int flags, struct addrinfo **ret, struct err *err)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = flags | AI_NUMERICSERV};
    char service[8];

    (void)snprintf(service, sizeof(service), "%u", port); /* 5 digits */
    int rc = getaddrinfo(host, service, &hints, ret);
    if (rc == 0)
        return 0;
    return err_set(err, -EHOSTUNREACH, "cannot resolve \"%s\": %s", host,
                   rc == EAI_SYSTEM ? "system error" : gai_strerror(rc));
}

static uint16_t bound_port(int fd)
{
    struct sockaddr_storage ss = {0};
    socklen_t n = sizeof(ss);

    if (getsockname(fd, (struct sockaddr *)&ss, &n) < 0)
        return 0;
    if (ss.ss_family == AF_INET6) {
        struct sockaddr_in6 in6 = {0};
        memcpy(&in6, &ss, sizeof(in6));
        return ntohs(in6.sin6_port);
    }
    struct sockaddr_in in = {0};
    memcpy(&in, &ss, sizeof(in));
    return ntohs(in.sin_port);
}

static int bind_one(const struct addrinfo *ai, bool listens)
{
    CLEANUP(fd_close)
    int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1, off = 0;

    if (fd < 0)
        return -errno;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)); /* a nicety */
    if (ai->ai_family == AF_INET6) /* "::" serves IPv4 too, where the kernel lets it */
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (bind(fd, ai->ai_addr, ai->ai_addrlen) < 0
        || (listens && listen(fd, LISTEN_BACKLOG) < 0))
        return -errno;

    int keep = fd;
    fd = -1;
    return keep;
}

static int tcp_bind(const char *addr,
                    uint16_t port,
                    bool listens,
                    int *ret_fd,
                    uint16_t *ret_port,
                    struct err *err)
{
    CLEANUP(addrinfo_freep) struct addrinfo *list = NULL;
    int rc = addr_resolve(addr, port, AI_PASSIVE, &list, err);

    if (rc)
        return rc;
    rc = -EADDRNOTAVAIL;
    for (struct addrinfo *ai = list; ai; ai = ai->ai_next) {
        rc = bind_one(ai, listens);
        if (rc >= 0)
            break;
    }
    /* A kernel without IPv6 cannot bind "::": then all of IPv4 is what was meant. */
    if ((rc == -EAFNOSUPPORT || rc == -EADDRNOTAVAIL) && strcmp(addr, "::") == 0)
        return tcp_bind("0.0.0.0", port, listens, ret_fd, ret_port, err);
    if (rc < 0)
        return err_errno(err, -rc, "cannot %s %s port %u",
                         listens ? "listen on" : "bind", addr, port);
    *ret_fd = rc;
    if (ret_port)
        *ret_port = bound_port(rc);
    return 0;
}

int tcp_listen(
    const char *addr, uint16_t port, int *ret_fd, uint16_t *ret_port, struct err *err)
{
    return tcp_bind(addr, port, true, ret_fd, ret_port, err);
}

int tcp_hold(int *ret_fd, uint16_t *ret_port, struct err *err)
{
    return tcp_bind("::", 0, false, ret_fd, ret_port, err);
}

static void set_nodelay(int fd)
{
    int on = 1;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)); /* speed only */
}

/* Returns the descriptor. *ret_is_pending: the connection is not established yet. */
static int connect_begin(const struct addrinfo *ai, bool *ret_is_pending)
{
    CLEANUP(fd_close)
    int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int rc;

    if (fd < 0)
        return -errno;
    set_nodelay(fd);
    rc = connect(fd, ai->ai_addr, ai->ai_addrlen) < 0 ? errno : 0;
    if (rc && rc != EINPROGRESS && rc != EINTR)
        return -rc;
    *ret_is_pending = rc != 0;

    int keep = fd;
    fd = -1;
    return keep;
}

int tcp_connect_result(int fd)
{
    int so_error = 0;
    socklen_t n = sizeof(so_error);

    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &so_error, &n) < 0)
        return -errno;
    return -so_error;
}

static int connect_one(const struct addrinfo *ai, uint64_t deadline_ns)
{
    bool is_pending = false;
    CLEANUP(fd_close) int fd = connect_begin(ai, &is_pending);

    if (fd < 0)
        return fd;
    if (is_pending) {
        int rc = fd_wait(fd, POLLOUT, deadline_ns);
        if (rc >= 0)
            rc = tcp_connect_result(fd);
        if (rc < 0)
            return rc;
    }

    int keep = fd;
    fd = -1;
    return keep;
}

int tcp_connect_begin(const char *address, uint16_t port, int *ret_fd, struct err *err)
{
    CLEANUP(addrinfo_freep) struct addrinfo *list = NULL;
    bool is_pending;
    int rc = addr_resolve(address, port, AI_NUMERICHOST, &list, err);

    if (rc)
        return rc;
    rc = connect_begin(list, &is_pending);
    if (rc < 0)
        return err_errno(err, -rc, "cannot connect to %s port %u", address, port);
    *ret_fd = rc;
    return 0;
}

/* One pass over all addresses of host. */
static int connect_all(
    const char *host, uint16_t port, uint64_t deadline_ns, int *ret_fd, struct err *err)
{
    CLEANUP(addrinfo_freep) struct addrinfo *list = NULL;
    int rc = addr_resolve(host, port, 0, &list, err);

    if (rc)
        return rc;
    rc = -EADDRNOTAVAIL;
    for (struct addrinfo *ai = list; ai; ai = ai->ai_next) {
        uint64_t limit = deadline_ns;

        if (ai->ai_next)
            limit = earlier_ns(limit, clock_now_ns() + ONE_ADDRESS_MS * NS_PER_MS);
        rc = connect_one(ai, limit);
        if (rc >= 0) {
            *ret_fd = rc;
            return 0;
        }
    }
    return err_errno(err, -rc, "cannot connect to %s port %u", host, port);
}

static bool worth_retrying(int rc)
{
    return rc == -ECONNREFUSED || rc == -EHOSTUNREACH || rc == -ENETUNREACH
           || rc == -ECONNRESET || rc == -ETIMEDOUT || rc == -EADDRNOTAVAIL;
}

int tcp_connect(const char *host,
                uint16_t port,
                uint64_t deadline_ns,
                bool retry,
                int *ret_fd,
                struct err *err)
{
    uint64_t started = clock_now_ns();
    uint64_t pause_ms = RETRY_FIRST_MS;

    for (;;) {
        struct err why = ERR_INIT;
        int rc = connect_all(host, port, deadline_ns, ret_fd, &why);

        if (rc == 0)
            return 0;
        if (!retry || !worth_retrying(rc))
            return err_set(err, rc, "%s", why.text);
        if (clock_left_ms(deadline_ns) == 0) {
            return err_set(err, -ETIMEDOUT, "%s (tried for %.1f s)", why.text,
                           (double)(clock_now_ns() - started) / 1e9);
        }
        uint64_t wake = earlier_ns(deadline_ns, clock_now_ns() + pause_ms * NS_PER_MS);
        (void)poll(NULL, 0,
                   clock_left_ms(wake)); /* cut short by a signal: try earlier */
        pause_ms = pause_ms * 2 > RETRY_MAX_MS ? RETRY_MAX_MS : pause_ms * 2;
    }
}

int tcp_accept(int listen_fd, int *ret_fd)
{
    int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0) /* the peer has closed already: not an error of the listener */
        return errno == ECONNABORTED || errno == EINTR ? -EAGAIN : -errno;
    set_nodelay(fd);
    *ret_fd = fd;
    return 0;
}

/* IPv4 mapped into IPv6 is written as IPv4: other processes can connect to that. */
static int addr_text(const struct sockaddr_storage *ss, char *buf, size_t size_bytes)
{
    const void *src;
    int family = ss->ss_family;

    if (family == AF_INET) {
        src = &((const struct sockaddr_in *)ss)->sin_addr;
    } else if (family == AF_INET6) {
        static const uint8_t v4_mapped[12] = {[10] = 0xff, 0xff};
        const uint8_t *a = ((const struct sockaddr_in6 *)ss)->sin6_addr.s6_addr;

        src = a;
        if (memcmp(a, v4_mapped, sizeof(v4_mapped)) == 0) {
            src = a + sizeof(v4_mapped);
            family = AF_INET;
        }
    } else {
        return -EAFNOSUPPORT;
    }
    return inet_ntop(family, src, buf, (socklen_t)size_bytes) ? 0 : -errno;
}

int tcp_peer_addr(int fd, char *buf, size_t size_bytes)
{
    struct sockaddr_storage ss = {0};
    socklen_t n = sizeof(ss);

    if (getpeername(fd, (struct sockaddr *)&ss, &n) < 0)
        return -errno;
    return addr_text(&ss, buf, size_bytes);
}

int tcp_local_addr(int fd, char *buf, size_t size_bytes)
{
    struct sockaddr_storage ss = {0};
    socklen_t n = sizeof(ss);

    if (getsockname(fd, (struct sockaddr *)&ss, &n) < 0)
        return -errno;
    return addr_text(&ss, buf, size_bytes);
}
