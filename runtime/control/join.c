/* SPDX-License-Identifier: Apache-2.0 */
/* Connects the tree. A rank with children listens on an abstract Unix socket of random
 * name and on a TCP port of its interface. Its children try the first, which exists
 * only in the same network namespace of the same machine, then the second. Both are
 * authenticated with the job token, and the rank with them (auth.h). The parent answers
 * by WELCOME, or by ABORT with a text.
 *
 * A rank connects to its parent first and then accepts its children. All ranks listen
 * before any of them connects, so the children wait in the backlog meanwhile, and the
 * tree grows level by level. */
#include "runtime/control/control.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/control/tree.h"
#include "runtime/wire/accept.h"
#include "runtime/wire/bytes.h"

#define ASK_NS NS_PER_S /* between two questions whether joining is interrupted */

int control_listen(struct control *c, struct err *err)
{
    int rc;

    if (c->n_edges <= 1)
        return 0;
    /* a sandbox may have no Unix sockets: then all use TCP */
    (void)unix_listen(&c->unix_fd, c->unix_name, NULL);
    rc = tcp_listen(c->addr, 0, &c->tcp_fd, &c->port, err);
    return rc < 0 ? err_prefix(err, "control channel of rank %u", c->cfg.rank) : 0;
}

void control_hello(const struct control *c, struct strbuf *out)
{
    struct control_address a = {.port = c->port};

    (void)snprintf(a.addr, sizeof(a.addr), "%s", c->port > 0 ? c->addr : "");
    (void)snprintf(a.unix_name, sizeof(a.unix_name), "%s", c->unix_name);
    address_write(&a, out);
}

/* --- children --- */

/* The edge of a new connection; 0 and an error text if it is refused. */
static uint32_t join_find_edge(const struct control *c, uint32_t rank, struct err *err)
{
    uint32_t i = 1;

    while (i < c->n_edges && c->edges[i].rank != rank)
        i++;
    if (i < c->n_edges && c->edges[i].conn.fd < 0)
        return i;
    if (i < c->n_edges)
        (void)err_set(err, -EPROTO, "rank %u is connected already", rank);
    else
        (void)err_set(err, -EPROTO, "rank %u is not a child of rank %u", rank,
                      c->cfg.rank);
    return 0;
}

static int join_welcome(struct control *c,
                        const struct admitted *m,
                        struct frame_conn *conn,
                        struct err *err)
{
    uint32_t index = join_find_edge(c, m->number, err);
    int rc;

    if (index == 0) {
        (void)frame_send(conn, TREE_ABORT, err->text, strlen(err->text));
        return err->code;
    }
    rc = frame_send(conn, TREE_WELCOME, NULL, 0);
    if (rc < 0)
        return err_errno(err, -rc, "welcoming rank %u", m->number);
    return tree_adopt(c, index, conn, m->is_unix, err);
}

static void join_admit(void *arg, const struct admitted *m)
{
    struct frame_conn conn;
    struct err err = ERR_INIT;

    frame_open(&conn, m->fd, &m->session, TREE_MAX_BYTES);
    if (join_welcome(arg, m, &conn, &err) < 0)
        log_warn("control connection refused, waiting for the other ranks",
                 "from=%s cause=\"%s\"", m->address, err.text);
    frame_release(&conn);
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

static int join_open_acceptor(struct control *c, struct acceptor *a, struct err *err)
{
    static const struct accept_kind kind = {
        .name = "control", .mine = ROLE_COORDINATOR, .theirs = ROLE_CONTROL};
    int rc = acceptor_open(a, &kind, err);

    if (rc == 0)
        rc = door_listen(a->door, c->tcp_fd, false, err);
    if (rc == 0 && c->unix_fd >= 0)
        rc = door_listen(a->door, c->unix_fd, true, err);
    return rc;
}

/* Was control_break called? */
static int join_interrupted(void *arg, struct err *err)
{
    struct control *c = arg;

    return tree_take_break(c) ? err_set(err, c->cause.code, "%s", c->cause.text) : 0;
}

/* Until a connection arrives, control_break, a signal or the time. */
static int join_await(struct control *c, int door, uint64_t until_ns, struct err *err)
{
    struct pollfd p[2] = {{.fd = door, .events = POLLIN},
                          {.fd = c->wake_fd, .events = POLLIN}};
    uint64_t n;

    (void)poll(p, ARRAY_LEN(p), clock_left_ms(until_ns)); /* the caller checks */
    if (p[1].revents)
        (void)!read(c->wake_fd, &n, sizeof(n));
    return join_interrupted(c, err);
}

static int join_accept_all(struct control *c, uint64_t deadline_ns, struct err *err)
{
    CLEANUP(acceptor_close) struct acceptor acceptor = {0};
    int rc = join_open_acceptor(c, &acceptor, err);

    while (rc == 0) {
        CLEANUP(strbuf_release) struct strbuf names = {0};
        uint64_t due = earlier_ns(deadline_ns, door_next_ns(acceptor.door));
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
        rc = join_await(c, door_fd(acceptor.door), due, err);
        if (rc == 0)
            acceptor_serve(&acceptor, &c->cfg.id, join_admit, c);
    }
    fd_close(&c->tcp_fd);
    fd_close(&c->unix_fd);
    return rc;
}

/* --- parent --- */

static int
join_try_unix(const struct auth_claim *claim, const char *name, struct frame_conn *ret)
{
    CLEANUP(fd_close) int fd = -1;
    CLEANUP(auth_session_wipe) struct auth_session session = {0};
    int rc;

    if (!name[0])
        return -ENOENT;
    rc = unix_connect(name, &fd, NULL);
    if (rc < 0)
        return rc;
    rc = auth_client(fd, claim, &session, NULL);
    if (rc < 0)
        return rc;
    frame_open(ret, fd, &session, TREE_MAX_BYTES);
    fd = -1;
    return 0;
}

static int join_reach_parent(struct control *c,
                             const uint8_t *hello,
                             size_t n,
                             uint64_t deadline_ns,
                             struct frame_conn *ret,
                             bool *ret_unix,
                             struct err *err)
{
    struct control_address a;
    const struct auth_claim claim = {.id = &c->cfg.id,
                                     .mine = ROLE_CONTROL,
                                     .theirs = ROLE_COORDINATOR,
                                     .number = c->cfg.rank,
                                     .deadline_ns = deadline_ns,
                                     .interrupted = join_interrupted,
                                     .arg = c};
    CLEANUP(auth_session_wipe) struct auth_session session = {0};
    int fd, rc = address_read(hello, n, control_parent(c), &a, err);

    if (rc < 0)
        return rc;
    *ret_unix = join_try_unix(&claim, a.unix_name, ret) == 0;
    if (*ret_unix)
        return 0;
    rc = join_interrupted(c, err);
    if (rc < 0)
        return rc;
    rc = auth_connect(&(struct auth_server){a.addr, a.port, .is_patient = true}, &claim,
                      &fd, &session, err);
    if (rc < 0)
        return err_prefix(err, "control channel to rank %u", control_parent(c));
    frame_open(ret, fd, &session, TREE_MAX_BYTES);
    return 0;
}

static int join_await_welcome(struct control *c,
                              struct frame_conn *conn,
                              uint64_t deadline_ns,
                              struct err *err)
{
    struct frame f;
    int rc = -ETIMEDOUT;

    while (rc == -ETIMEDOUT && clock_now_ns() < deadline_ns) {
        rc = join_interrupted(c, err);
        if (rc < 0)
            return rc;
        rc = frame_recv_until(conn, earlier_ns(deadline_ns, clock_now_ns() + ASK_NS),
                              &f);
    }
    if (rc < 0)
        return err_errno(err, -rc, "control channel: rank %u did not welcome rank %u",
                         control_parent(c), c->cfg.rank);
    if (f.type == TREE_ABORT)
        return err_set(err, -EPROTO, "control channel: rank %u refused: %.*s",
                       control_parent(c), (int)(f.n < 400 ? f.n : 400),
                       (const char *)f.p);
    if (f.type != TREE_WELCOME)
        return err_set(err, -EPROTO,
                       "control channel: rank %u sent frame %d, not a welcome",
                       control_parent(c), f.type);
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
    rc = rc < 0 ? rc : join_await_welcome(c, &conn, deadline_ns, err);
    rc = rc < 0 ? rc : tree_adopt(c, 0, &conn, is_unix, err);
    frame_release(&conn);
    if (rc == -EPIPE && !tree_take_break(c))
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
