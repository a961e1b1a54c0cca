/* SPDX-License-Identifier: Apache-2.0 */
/* The control channel as a tree: a rank has one connection to its parent and one to
 * each of its children (shape.h).
 *
 *            rank 0     UP: messages of ranks, with their origin; what arrives in
 *            /    \         one pump is sent on in one frame
 *         1 (host) 8    DOWN, ENDED, ABORT: unchanged, to the children first, then
 *        / \      / \       to our own handlers
 *       2   3    9   10
 *
 * I1  Rank 0 sends one sequence of DOWN, ENDED and ABORT, and it arrives as one on
 *     every rank: this is the common order.
 *
 * I2  There is one cause (tree_cause.c).
 *
 * I3  After ENDED no rank can be lost any more: nothing is pending, and ranks leave at
 *     any time.
 *
 * I4  Silence counts only while this process was running: when it was stopped or
 *     starved, the gap is added to the limit of its neighbours.
 *
 * I5  A rank checks only its neighbours for silence. The parent of a silent rank
 *     detects it first, because it reports to rank 0. The children wait a little
 *     longer; otherwise their failure would look to other ranks like a failure without
 *     a cause.
 *
 * Driven by the coordinator through control.h; join.c makes the connections. */
#include "runtime/control/tree.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"

enum { EVENTS = 64 };
static const uint64_t BEAT_MIN_NS = 50 * NS_PER_MS, BEAT_MAX_NS = 5 * NS_PER_S;
static const uint64_t BELOW_EXTRA_NS = 250 * NS_PER_MS; /* I5, above a heartbeat */
static const uint32_t WAKE_TAG = UINT32_MAX;

/* --- one connection --- */

static void edge_update_events(struct control *c, uint32_t index)
{
    struct tree_edge *e = &c->edges[index];
    bool wants = frame_unsent(&e->conn) > 0;
    struct epoll_event ev = {.events = EPOLLIN, .data.u32 = index};

    if (e->conn.fd < 0 || wants == e->wants_out)
        return;
    if (wants)
        ev.events |= EPOLLOUT;
    e->wants_out = wants;
    (void)epoll_ctl(c->epoll_fd, EPOLL_CTL_MOD, e->conn.fd,
                    &ev); /* it is in the epoll set */
}

int tree_adopt(struct control *c,
               uint32_t index,
               struct frame_conn *conn,
               bool is_unix,
               struct err *err)
{
    struct tree_edge *e = &c->edges[index];
    struct epoll_event ev = {.events = EPOLLIN, .data.u32 = index};

    if (epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, conn->fd, &ev) < 0)
        return err_errno(err, errno, "epoll_ctl");
    e->conn = *conn;
    frame_init(conn);
    e->is_unix = is_unix;
    e->received_ns = clock_now_ns();
    return 0;
}

/* Closing alone would leave the socket in epoll while a forked process has a copy of
 * the descriptor. */
void tree_drop(struct control *c, struct tree_edge *e)
{
    (void)epoll_ctl(c->epoll_fd, EPOLL_CTL_DEL, e->conn.fd, NULL);
    frame_close(&e->conn); /* its last frame may still be in use */
}

int tree_send(
    struct control *c, uint32_t index, enum tree_frame type, const void *p, size_t n)
{
    int rc;

    if (c->n_edges == 0 || c->edges[index].conn.fd < 0)
        return 0;
    rc = frame_send(&c->edges[index].conn, (uint8_t)type, p, n);
    if (rc < 0 && rc != -EPIPE) {
        tree_lost(c, index, rc);
        return rc;
    }
    edge_update_events(
        c, index); /* a closed socket stays readable: the pump handles the loss */
    return 0;
}

static int tree_send_from(
    struct control *c, uint32_t i, enum tree_frame type, const void *p, size_t n)
{
    int first = 0;

    for (; i < c->n_edges; i++) {
        int r = tree_send(c, i, type, p, n);

        if (first == 0)
            first = r;
    }
    return first;
}

int tree_send_children(struct control *c, enum tree_frame type, const void *p, size_t n)
{
    return tree_send_from(c, 1, type, p, n);
}

/* --- the pump --- */

static void edge_read(struct control *c, uint32_t index, uint64_t now_ns)
{
    struct tree_edge *e = &c->edges[index];
    struct frame f;
    int rc;

    frame_readable(&e->conn);
    while (!c->is_broken && e->conn.fd >= 0) {
        rc = frame_recv(&e->conn, &f);
        if (rc == 0)
            return;
        e->received_ns = now_ns;
        if (rc > 0)
            rc = tree_on_frame(c, index, &f);
        if (rc < 0)
            tree_lost(c, index, rc);
    }
}

static void edge_write(struct control *c, uint32_t index, uint64_t now_ns)
{
    struct frame_conn *conn = &c->edges[index].conn;
    int rc = frame_flush(conn);
    uint64_t before;

    if (rc < 0) {
        do { /* its last frames may be unread */
            before = conn->n_read;
            edge_read(c, index, now_ns);
        } while (conn->fd >= 0 && conn->n_read != before);
        tree_lost(c, index, rc);
    }
    edge_update_events(c, index);
}

static void tree_read_edges(struct control *c, uint64_t now_ns)
{
    struct epoll_event ev[EVENTS];
    int n;

    do {
        n = epoll_wait(c->epoll_fd, ev, EVENTS, 0);
        for (int i = 0; i < n; i++) {
            uint32_t index = ev[i].data.u32;
            uint64_t dummy;

            if (index == WAKE_TAG) {
                (void)!read(c->wake_fd, &dummy, sizeof(dummy)); /* empty is fine too */
                continue;
            }
            if (ev[i].events & EPOLLOUT)
                edge_write(c, index, now_ns);
            if (ev[i].events & ~(uint32_t)EPOLLOUT)
                edge_read(c, index, now_ns);
        }
    } while (n == EVENTS);
}

/* I5: rank 0 has no parent, so its children are the first to detect it. */
static uint64_t edge_timeout_ns(const struct control *c, uint32_t index)
{
    bool is_inner = index == 0 && c->edges[0].rank != 0;

    return c->cfg.peer_timeout_ns + (is_inner ? c->beat_every_ns + BELOW_EXTRA_NS : 0);
}

static void tree_check_silence(struct control *c, uint64_t now_ns)
{
    uint64_t gap = now_ns - c->pumped_ns;

    c->silence_ns = UINT64_MAX;
    for (uint32_t i = 0; i < c->n_edges; i++) {
        struct tree_edge *e = &c->edges[i];
        uint64_t at;

        if (e->conn.fd < 0 || e->has_left)
            continue;
        if (gap > 2 * c->beat_every_ns)
            e->received_ns += gap; /* I4 */
        at = e->received_ns + edge_timeout_ns(c, i);
        if (c->is_ended)
            continue;
        if (now_ns >= at)
            tree_silent(c, i);
        else if (at < c->silence_ns)
            c->silence_ns = at;
        if (c->is_broken)
            return;
    }
}

int control_pump(struct control *c, struct err *err)
{
    uint64_t now = clock_now_ns();

    (void)tree_take_break(c);
    for (uint32_t i = 0; c->is_fresh && i < c->n_edges; i++)
        edge_read(c, i, now);
    c->is_fresh = false;
    if (!c->is_broken) {
        tree_read_edges(c, now);
        tree_check_silence(c, now);
        c->pumped_ns = now;
        (void)tree_flush_up(c); /* handles failures itself */
    }
    if (!c->is_broken && c->n_edges > 0 && now >= c->beat_ns + c->beat_every_ns) {
        c->beat_ns = now;
        (void)tree_send_from(c, 0, TREE_HEARTBEAT, NULL, 0); /* likewise */
    }
    if (!c->is_broken && c->suspect_until_ns > 0 && now >= c->suspect_until_ns)
        tree_end_suspicion(c, now);
    if (c->is_broken)
        return err_set(err, c->cause.code, "%s", c->cause.text);
    return 0;
}

uint64_t control_next_ns(const struct control *c)
{
    uint64_t next = UINT64_MAX;

    if (c->is_broken)
        return 0; /* control_pump has the cause */
    if (c->n_edges > 0)
        next = earlier_ns(c->beat_ns + c->beat_every_ns, c->silence_ns);
    return c->suspect_until_ns > 0 ? earlier_ns(next, c->suspect_until_ns) : next;
}

int control_down(struct control *c, const void *p, size_t n)
{
    return tree_send_children(c, TREE_DOWN, p, n);
}

/* --- life --- */

static void edge_init(struct tree_edge *e, uint32_t rank)
{
    frame_init(&e->conn);
    e->rank = rank;
    (void)snprintf(e->via, sizeof(e->via), "via rank %u", rank);
}

static int tree_init_edges(struct control *c)
{
    uint32_t below[2 * CONTROL_FANOUT_MAX], n;

    if (c->cfg.size == 1)
        return 0;
    if (shape_init(&c->shape, c->cfg.members, c->cfg.size, c->cfg.fanout) < 0)
        return -ENOMEM;
    for (uint32_t r = 0; r < c->cfg.size; r++)
        c->n_under += r != c->cfg.rank && shape_is_under(&c->shape, r, c->cfg.rank);
    n = shape_children(&c->shape, c->cfg.rank, below, ARRAY_LEN(below));
    c->edges = mem_calloc(n + 1, sizeof(*c->edges));
    if (!c->edges)
        return -ENOMEM;
    edge_init(&c->edges[0], control_parent(c));
    for (uint32_t i = 0; i < n; i++)
        edge_init(&c->edges[i + 1], below[i]);
    c->n_edges = n + 1;
    return 0;
}

uint32_t control_parent(const struct control *c)
{
    return tree_is_root(c) ? 0 : c->shape.parent[c->cfg.rank];
}

uint32_t control_n_below(const struct control *c)
{
    return c->n_edges > 0 ? c->n_edges - 1 : 0;
}

static int tree_open_events(struct control *c)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.u32 = WAKE_TAG};

    c->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->epoll_fd < 0 || c->wake_fd < 0
        || epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, c->wake_fd, &ev) < 0)
        return -errno;
    return 0;
}

int control_open(const struct control_config *cfg,
                 const char *local_addr,
                 struct control **ret,
                 struct err *err)
{
    struct control *c;
    uint64_t beat = cfg->peer_timeout_ns / 4;
    int rc;

    if (cfg->fanout < CONTROL_FANOUT_MIN || cfg->fanout > CONTROL_FANOUT_MAX)
        return err_set(err, -EINVAL,
                       "rank 0's HVD_CONTROL_FANOUT is %u, %d to %d is allowed",
                       cfg->fanout, CONTROL_FANOUT_MIN, CONTROL_FANOUT_MAX);
    c = mem_zalloc(sizeof(*c));
    if (!c)
        return err_set(err, -ENOMEM, "out of memory");
    c->cfg = *cfg;
    c->tcp_fd = c->unix_fd = c->epoll_fd = c->wake_fd = -1;
    c->beat_every_ns = beat < BEAT_MIN_NS   ? BEAT_MIN_NS
                       : beat > BEAT_MAX_NS ? BEAT_MAX_NS
                                            : beat;
    c->silence_ns = UINT64_MAX;
    strbuf_init(&c->up, TREE_MAX_BYTES);
    rc = tree_init_edges(c);
    rc = rc < 0 ? rc : tree_open_events(c);
    if (rc < 0) {
        control_close(c);
        return err_errno(err, -rc, "control channel");
    }
    (void)snprintf(c->addr, sizeof(c->addr), "%s", local_addr);
    c->pumped_ns = c->beat_ns = clock_now_ns();
    *ret = c;
    return 0;
}

void control_flush(struct control *c, uint64_t deadline_ns)
{
    tree_send_ended_early(c);
    for (uint32_t i = 0; i < c->n_edges; i++)
        if (c->edges[i].conn.fd >= 0)
            (void)frame_flush_until(&c->edges[i].conn, deadline_ns); /* best effort */
}

void control_close(struct control *c)
{
    if (!c)
        return;
    control_flush(c, clock_now_ns() + NS_PER_S);
    for (uint32_t i = 0; i < c->n_edges; i++)
        frame_release(&c->edges[i].conn);
    mem_free(c->edges);
    shape_release(&c->shape);
    strbuf_release(&c->up);
    fd_close(&c->tcp_fd);
    fd_close(&c->unix_fd);
    fd_close(&c->wake_fd);
    fd_close(&c->epoll_fd);
    mem_free(c);
}

static void fd_close_copy(int fd)
{
    if (fd >= 0)
        (void)close(fd);
}

void control_forked(struct control *c)
{
    for (uint32_t i = 0; i < c->n_edges; i++)
        fd_close_copy(c->edges[i].conn.fd);
    fd_close_copy(c->tcp_fd);
    fd_close_copy(c->unix_fd);
    fd_close_copy(c->wake_fd);
    fd_close_copy(c->epoll_fd);
}

int control_epoll_fd(const struct control *c)
{
    return c->epoll_fd;
}

void control_wake(const struct control *c)
{
    uint64_t one = 1;

    (void)!write(c->wake_fd, &one, sizeof(one)); /* full means awake already */
}

bool control_is_ended(const struct control *c)
{
    return c->is_ended;
}

const char *control_transport(const struct control *c, uint32_t r)
{
    uint32_t next, i = 0;

    if (r == c->cfg.rank || r >= c->cfg.size)
        return "self";
    next = shape_next(&c->shape, c->cfg.rank, r);
    while (i + 1 < c->n_edges && c->edges[i].rank != next)
        i++;
    if (next != r)
        return c->edges[i].via;
    return c->edges[i].is_unix ? "unix" : "tcp";
}
