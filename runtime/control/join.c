/* SPDX-License-Identifier: Apache-2.0 */
/* Connects the tree. A rank with children listens on an abstract Unix socket of random
 * name and on a TCP port of its interface. Its children try the first, which exists
 * only in the same network namespace of the same machine, then the second. Both are
 * authenticated with the job token (auth.h) before anything else is sent; then JOIN
 * with the rank, answered by WELCOME, or by ABORT with a text.
 *
 * A rank connects to its parent first and then accepts its children. All ranks listen
 * before any of them connects, so the children wait in the backlog meanwhile, and the
 * tree grows level by level. One connection is accepted at a time and has
 * AUTH_LIMIT_NS: a process that connects and sends nothing delays the start but cannot
 * prevent it. */
#include "runtime/control/control.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/control/tree.h"
#include "runtime/wire/bytes.h"

static const uint64_t AUTH_LIMIT_NS = 3 * NS_PER_S;
enum { BACKLOG = 512 };

static socklen_t unix_make_addr(const char *name, struct sockaddr_un *ret)
{
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX}; /* sun_path[0] = 0: abstract */
    memcpy(ret->sun_path + 1, name, strlen(name));
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
}

static int join_listen_unix(struct control *c)
{
    struct sockaddr_un sa;
    uint8_t raw[16];
    socklen_t len;
    int rc = random_bytes(raw, sizeof(raw));

    if (rc < 0)
        return rc;
    memcpy(c->unix_name, "hvd-", 4);
    hex_encode(raw, sizeof(raw), c->unix_name + 4);
    len = unix_make_addr(c->unix_name, &sa);
    c->unix_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (c->unix_fd < 0)
        return -errno;
    if (bind(c->unix_fd, (struct sockaddr *)&sa, len) < 0
        || listen(c->unix_fd, BACKLOG) < 0)
        return -errno;
    return 0;
}

int control_listen(struct control *c, struct err *err)
{
    int rc;

    if (c->n_edges <= 1)
        return 0;
    if (join_listen_unix(c) < 0) { /* no Unix sockets here (a sandbox): all use TCP */
        fd_close(&c->unix_fd);
        c->unix_name[0] = 0;
    }
    rc = tcp_listen(c->addr, 0, &c->tcp_fd, &c->port, err);
    return rc < 0 ? err_prefix(err, "control channel of rank %u", c->cfg.rank) : 0;
}

void control_hello(const struct control *c, struct strbuf *out)
{
    bytes_put_name(out, c->port > 0 ? c->addr : "", sizeof(c->addr));
    bytes_put(out, c->port, 2);
    bytes_put_name(out, c->unix_name, sizeof(c->unix_name));
}

/* --- children --- */

/* The edge of a new connection; 0 and an error text if it is refused. */
static uint32_t
join_find_edge(const struct control *c, uint64_t rank, uint32_t mine, struct err *err)
{
    uint32_t i = 1;

    while (i < c->n_edges && c->edges[i].rank != rank)
        i++;
    if (i < c->n_edges && c->edges[i].conn.fd < 0)
        return i;
    if (i < c->n_edges)
        (void)err_set(err, -EPROTO, "rank %llu is connected already",
                      (unsigned long long)rank);
    else
        (void)err_set(err, -EPROTO, "rank %llu is not a child of rank %u",
                      (unsigned long long)rank, mine);
    return 0;
}

static int join_receive_rank(struct control *c,
                             struct frame_conn *conn,
                             bool is_unix,
                             uint64_t deadline_ns,
                             struct err *err)
{
    enum frame_type type;
    const uint8_t *p;
    size_t n;
    uint32_t index;
    uint64_t rank;
    struct bytes_reader in;
    int rc = frame_recv_until(conn, deadline_ns, &type, &p, &n);

    if (rc < 0)
        return err_errno(err, -rc, "waiting for its rank");
    in = (struct bytes_reader){.p = p, .left = n};
    if (type != FRAME_JOIN || !bytes_get(&in, 4, &rank) || in.left > 0)
        return err_set(err, -EPROTO, "expected its rank");
    index = join_find_edge(c, rank, c->cfg.rank, err);
    if (index == 0) {
        (void)frame_send(conn, FRAME_ABORT, err->text, strlen(err->text));
        return err->code;
    }
    rc = frame_send(conn, FRAME_WELCOME, NULL, 0);
    if (rc < 0)
        return err_errno(err, -rc, "welcoming rank %u", (unsigned)rank);
    return tree_adopt(c, index, conn, is_unix, err);
}

static void
join_accept_child(struct control *c, int fd, bool is_unix, uint64_t deadline_ns)
{
    uint64_t limit = earlier_ns(deadline_ns, clock_now_ns() + AUTH_LIMIT_NS);
    struct auth_session session;
    struct frame_conn conn;
    struct err err = ERR_INIT;
    char from[64] = "this host";
    int rc = auth_server(fd, &c->cfg.id, ROLE_COORDINATOR, ROLE_CONTROL, limit,
                         &session, &err);

    if (!is_unix)
        (void)tcp_peer_addr(fd, from, sizeof(from));
    frame_init(&conn);
    if (rc == 0) {
        frame_open(&conn, fd, &session);
        fd = -1;
        rc = join_receive_rank(c, &conn, is_unix, limit, &err);
    }
    if (rc < 0)
        log_warn("control connection refused, waiting for the other ranks",
                 "from=%s cause=\"%s\"", from, err.text);
    frame_release(&conn);
    fd_close(&fd);
}

static void join_accept_pending(struct control *c, uint64_t deadline_ns)
{
    int fd;

    while (c->unix_fd >= 0
           && (fd = accept4(c->unix_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0)
        join_accept_child(c, fd, true, deadline_ns);
    while (tcp_accept(c->tcp_fd, &fd) == 0)
        join_accept_child(c, fd, false, deadline_ns);
}

static uint32_t join_list_missing(const struct control *c, struct strbuf *names)
{
    uint32_t n = 0;

    for (uint32_t i = 1; i < c->n_edges; i++) {
        if (c->edges[i].conn.fd >= 0)
            continue;
        if (n++ < 16)
            strbuf_printf(names, "%s%u", n > 1 ? ", " : "", c->edges[i].rank);
    }
    return n;
}

static int join_accept_all(struct control *c, uint64_t deadline_ns, struct err *err)
{
    for (;;) {
        CLEANUP(strbuf_release) struct strbuf names = {0};
        struct pollfd pfd[2] = {{.fd = c->tcp_fd, .events = POLLIN},
                                {.fd = c->unix_fd, .events = POLLIN}};
        uint32_t n;

        strbuf_init(&names, 512);
        n = join_list_missing(c, &names);
        if (n == 0)
            break;
        if (clock_now_ns() >= deadline_ns)
            return err_set(
                err, -ETIMEDOUT,
                "rank %u timed out waiting for the control connection of %u rank%s: %s",
                c->cfg.rank, n, n > 1 ? "s" : "", strbuf_str(&names));
        (void)poll(pfd, 2,
                   clock_left_ms(deadline_ns)); /* EINTR: the loop polls again */
        join_accept_pending(c, deadline_ns);
    }
    fd_close(&c->tcp_fd);
    fd_close(&c->unix_fd);
    return 0;
}

/* --- parent --- */

static int join_authenticate(struct control *c,
                             int fd,
                             uint64_t deadline_ns,
                             struct frame_conn *ret,
                             struct err *err)
{
    CLEANUP(fd_close) int own = fd;
    struct auth_session session;
    int rc = auth_client(own, &c->cfg.id, ROLE_CONTROL, ROLE_COORDINATOR, deadline_ns,
                         &session, err);

    if (rc < 0)
        return rc;
    frame_open(ret, own, &session);
    own = -1;
    return 0;
}

static int join_try_unix(struct control *c,
                         const char *name,
                         uint64_t deadline_ns,
                         struct frame_conn *ret)
{
    CLEANUP(fd_close) int fd = -1;
    struct sockaddr_un sa;
    socklen_t len = unix_make_addr(name, &sa);
    int own;

    if (!name[0])
        return -ENOENT;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&sa, len) < 0)
        return -errno;
    own = fd;
    fd = -1;
    return join_authenticate(c, own, deadline_ns, ret, NULL);
}

static int join_reach_parent(struct control *c,
                             const uint8_t *hello,
                             size_t n,
                             uint64_t deadline_ns,
                             struct frame_conn *ret,
                             bool *ret_unix,
                             struct err *err)
{
    struct bytes_reader in = {.p = hello, .left = n};
    char addr[sizeof(c->addr)], name[UNIX_NAME_BYTES];
    uint64_t port;
    int fd, rc;

    if (!bytes_get_name(&in, addr, sizeof(addr)) || !bytes_get(&in, 2, &port)
        || !bytes_get_name(&in, name, sizeof(name)))
        return err_set(err, -EPROTO, "rank %u sent a malformed greeting",
                       control_parent(c));
    *ret_unix = join_try_unix(c, name, deadline_ns, ret) == 0;
    if (*ret_unix)
        return 0;
    rc = tcp_connect(addr, (uint16_t)port, deadline_ns, true, &fd, err);
    if (rc == 0)
        rc = join_authenticate(c, fd, deadline_ns, ret, err);
    return rc < 0 ? err_prefix(err, "control channel to rank %u", control_parent(c))
                  : 0;
}

static int join_send_rank(struct control *c,
                          struct frame_conn *conn,
                          uint64_t deadline_ns,
                          struct err *err)
{
    uint32_t rank = c->cfg.rank;
    uint8_t raw[4];
    enum frame_type type;
    const uint8_t *p;
    size_t n;
    int rc;

    bytes_store(raw, rank, sizeof(raw));
    rc = frame_send(conn, FRAME_JOIN, raw, sizeof(raw));
    rc = rc < 0 ? rc : frame_recv_until(conn, deadline_ns, &type, &p, &n);
    if (rc < 0)
        return err_errno(err, -rc, "control channel: rank %u did not welcome rank %u",
                         control_parent(c), rank);
    if (type == FRAME_ABORT)
        return err_set(err, -EPROTO, "control channel: rank %u refused: %.*s",
                       control_parent(c), (int)(n < 400 ? n : 400), (const char *)p);
    if (type != FRAME_WELCOME)
        return err_set(err, -EPROTO,
                       "control channel: rank %u sent frame %d, not a welcome",
                       control_parent(c), (int)type);
    return 0;
}

static int join_connect_parent(struct control *c,
                               const uint8_t *hello,
                               size_t n,
                               uint64_t deadline_ns,
                               struct err *err)
{
    struct frame_conn conn;
    bool is_unix = false;
    int rc;

    frame_init(&conn);
    rc = join_reach_parent(c, hello, n, deadline_ns, &conn, &is_unix, err);
    rc = rc < 0 ? rc : join_send_rank(c, &conn, deadline_ns, err);
    rc = rc < 0 ? rc : tree_adopt(c, 0, &conn, is_unix, err);
    frame_release(&conn);
    if (rc == -EPIPE || rc == -ECONNRESET)
        rc = tree_set_lost(c, control_parent(c), rc,
                           "it closed the connection while this rank joined", err);
    return rc;
}

int control_join(struct control *c,
                 const uint8_t *hello,
                 size_t n,
                 uint64_t deadline_ns,
                 struct err *err)
{
    int rc = 0;

    if (c->n_edges == 0)
        return 0;
    if (!tree_is_root(c))
        rc = join_connect_parent(c, hello, n, deadline_ns, err);
    if (rc == 0 && c->n_edges > 1)
        rc = join_accept_all(c, deadline_ns, err);
    if (rc < 0)
        control_abort(c, err ? err->text : "a rank could not join");
    c->is_fresh = true;
    c->pumped_ns = c->beat_ns = clock_now_ns();
    for (uint32_t i = 0; i < c->n_edges; i++)
        c->edges[i].received_ns = c->pumped_ns;
    return rc;
}
