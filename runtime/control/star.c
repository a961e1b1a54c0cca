/* SPDX-License-Identifier: Apache-2.0 */
/* The control channel as a star: every rank holds one connection to rank 0.
 *
 * I1  Rank 0 sends the same sequence of DOWN, ENDED and ABORT frames to everyone; that
 * order is the order of the world. I2  One cause: the first that rank 0 settles is told
 * to all and never changes. What a rank sees itself (its backend failed) is a
 * suspicion; it waits SUSPECT_GRACE for rank 0 to hear of a closed connection, because
 * the rank that died is the cause and its neighbour's broken pipe the consequence. Only
 * the loss of rank 0 itself is judged by everyone alone. I3  After ENDED nobody can be
 * lost any more: nothing is pending, and ranks go as they please. I4  Silence counts
 * only while we listened: when this process itself was stopped or starved, the gap is
 * added to what its peers are allowed.
 *
 * Driven by the coordinator through control.h; connections are made in join.c. */
#include "runtime/control/control.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/control/star.h"

enum { EVENTS = 64, MAX_TEXT = 479 };
static const uint64_t SUSPECT_GRACE_ROOT_NS = 200 * NS_PER_MS;
static const uint64_t SUSPECT_GRACE_NS =
    700 * NS_PER_MS; /* rank 0 answers within its own */
static const uint64_t BEAT_MIN_NS = 50 * NS_PER_MS, BEAT_MAX_NS = 5 * NS_PER_S;
static const uint32_t WAKE_TAG = UINT32_MAX;

static uint32_t peer_rank(const struct control *c, uint32_t index)
{
    return star_is_root(c) ? index : 0;
}

static void who(const struct control *c, uint32_t rank, char *buf, size_t size)
{
    const struct control_member *m = &c->cfg.members[rank];

    (void)snprintf(buf, size, "rank %u (host %s, pid %u)", rank, m->host, m->pid);
}

/* --- one peer --- */

static void watch(struct control *c, uint32_t index)
{
    struct star_peer *p = &c->peers[index];
    bool wants = frame_wants_write(&p->conn);
    struct epoll_event ev = {.events = EPOLLIN, .data.u32 = index};

    if (p->conn.fd < 0 || wants == p->wants_out)
        return;
    if (wants)
        ev.events |= EPOLLOUT;
    p->wants_out = wants;
    (void)epoll_ctl(c->epoll_fd, EPOLL_CTL_MOD, p->conn.fd,
                    &ev); /* known to be there */
}

int star_adopt(struct control *c,
               uint32_t index,
               struct frame_conn *conn,
               bool is_unix,
               struct err *err)
{
    struct star_peer *p = &c->peers[index];
    struct epoll_event ev = {.events = EPOLLIN, .data.u32 = index};

    if (epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, conn->fd, &ev) < 0)
        return err_errno(err, errno, "epoll_ctl");
    p->conn = *conn;
    frame_init(conn);
    p->is_unix = is_unix;
    p->heard_ns = clock_now_ns();
    return 0;
}

/* Closing alone leaves it in epoll while a forked process holds a copy of the
 * descriptor. */
static void drop(struct control *c, struct star_peer *p)
{
    (void)epoll_ctl(c->epoll_fd, EPOLL_CTL_DEL, p->conn.fd, NULL);
    frame_release(&p->conn);
}

/* The peer has closed. Its last words (ABORT, ENDED) may wait here unread: they come
 * before the judgement that it was lost. */
static bool is_gone(int r)
{
    return r == -EPIPE || r == -ECONNRESET;
}

static void settle(struct control *c, const char *text);

static void lost(struct control *c, uint32_t index, int r)
{
    struct star_peer *p = &c->peers[index];
    char name[HOST_NAME_MAX_BYTES + 64], text[480];

    if (p->conn.fd < 0)
        return;
    drop(c, p);
    if (p->has_left || c->is_ended || c->is_broken)
        return;
    if (c->suspect_until_ns > 0 && c->suspect_rank == peer_rank(c, index)) {
        settle(c, c->suspicion); /* it told why it goes */
        return;
    }
    who(c, peer_rank(c, index), name, sizeof(name));
    if (is_gone(r))
        (void)snprintf(text, sizeof(text), "%s was lost: connection closed", name);
    else if (r == -EBADMSG)
        (void)snprintf(text, sizeof(text),
                       "%s was lost: its control frame failed the check", name);
    else
        (void)snprintf(text, sizeof(text), "%s was lost: %s", name, strerror(-r));
    settle(c, text);
}

static int
tell(struct control *c, uint32_t index, enum frame_type type, const void *p, size_t n)
{
    int r;

    if (c->peers[index].conn.fd < 0)
        return 0;
    r = frame_send(&c->peers[index].conn, type, p, n);
    if (r < 0 && !is_gone(r)) {
        lost(c, index, r);
        return r;
    }
    watch(c, index); /* what a closed socket did not take brings the pump back to it */
    return 0;
}

static int tell_all(struct control *c, enum frame_type type, const void *p, size_t n)
{
    int first = 0;

    for (uint32_t i = star_is_root(c) ? 1 : 0; i < c->n_peers; i++) {
        int r = tell(c, i, type, p, n);

        if (first == 0)
            first = r;
    }
    return first;
}

/* --- causes and ends --- */

static void settle(struct control *c, const char *text)
{
    if (c->is_broken)
        return;
    c->is_broken = true;
    (void)err_set(&c->cause, -ECONNABORTED, "%s", text);
    if (star_is_root(c))
        (void)tell_all(c, FRAME_ABORT, c->cause.text, strlen(c->cause.text));
}

static void end(struct control *c, const char *text)
{
    if (c->is_ended || c->is_broken)
        return;
    c->is_ended = true;
    (void)snprintf(c->who_ended, sizeof(c->who_ended), "%s", text);
    if (star_is_root(c))
        (void)tell_all(c, FRAME_ENDED, c->who_ended, strlen(c->who_ended));
    c->cfg.handlers.ended(c->cfg.handlers.arg, c->who_ended);
}

static void leave_text(const struct control *c,
                       uint32_t rank,
                       enum leave_reason why,
                       char *buf,
                       size_t size)
{
    char name[HOST_NAME_MAX_BYTES + 64];

    who(c, rank, name, sizeof(name));
    (void)snprintf(buf, size, "%s %s", name,
                   why == LEAVE_EXIT ? "exited" : "called shutdown()");
}

void control_leave(struct control *c, enum leave_reason why)
{
    uint8_t byte = (uint8_t)why;
    char text[480];

    if (c->has_left || c->is_broken)
        return;
    c->has_left = true;
    if (!star_is_root(c)) {
        (void)tell(c, 0, FRAME_LEAVE, &byte,
                   1); /* a lost rank 0 is noticed by the pump */
        return;
    }
    leave_text(c, 0, why, text, sizeof(text));
    end(c, text);
}

/* Rank 0 puts before the sentence whose it is. */
static void suspect(struct control *c, uint32_t rank, const char *sentence)
{
    char name[HOST_NAME_MAX_BYTES + 64];

    if (c->is_broken || c->suspect_until_ns > 0)
        return;
    who(c, rank, name, sizeof(name));
    if (c->is_ended)
        (void)snprintf(c->suspicion, sizeof(c->suspicion), "%s", c->who_ended);
    else if (star_is_root(c))
        (void)snprintf(c->suspicion, sizeof(c->suspicion), "%s: %s", name, sentence);
    else
        (void)snprintf(c->suspicion, sizeof(c->suspicion), "%s", sentence);
    c->suspect_rank = rank;
    c->suspect_until_ns =
        clock_now_ns() + (star_is_root(c) ? SUSPECT_GRACE_ROOT_NS : SUSPECT_GRACE_NS);
    if (!star_is_root(c))
        (void)tell(c, 0, FRAME_SUSPECT, c->suspicion, strlen(c->suspicion));
}

void control_suspect(struct control *c, const char *sentence)
{
    suspect(c, c->cfg.rank, sentence);
}

void control_abort(struct control *c, const char *cause)
{
    if (!star_is_root(c) && !c->is_broken)
        (void)tell(c, 0, FRAME_SUSPECT, cause, strnlen(cause, MAX_TEXT));
    settle(c, cause);
}

/* --- frames --- */

static void text_of(const uint8_t *p, size_t n, char *buf, size_t size)
{
    size_t k = n < size ? n : size - 1;

    if (k > 0)
        memcpy(buf, p, k);
    buf[k] = 0;
}

static void on_text(
    struct control *c, uint32_t index, enum frame_type type, const uint8_t *p, size_t n)
{
    char text[480];

    text_of(p, n, text, sizeof(text));
    if (type == FRAME_SUSPECT)
        suspect(c, peer_rank(c, index), text);
    else if (type == FRAME_ABORT)
        settle(c, text);
    else
        end(c, text);
}

static int on_leave(struct control *c, uint32_t index, const uint8_t *p, size_t n)
{
    char text[480];

    if (n != 1 || p[0] > LEAVE_EXIT)
        return -EBADMSG;
    c->peers[index].has_left = true;
    leave_text(c, index, (enum leave_reason)p[0], text, sizeof(text));
    end(c, text);
    return 0;
}

static int on_work(
    struct control *c, uint32_t index, enum frame_type type, const uint8_t *p, size_t n)
{
    const struct control_handlers *h = &c->cfg.handlers;
    struct err err = ERR_INIT;
    char text[480];
    int r;

    if (c->is_ended) /* sent before that rank heard of the end: fails there */
        return 0;
    r = type == FRAME_UP ? h->up(h->arg, index, p, n, &err)
                         : h->down(h->arg, p, n, &err);
    if (r < 0) {
        (void)snprintf(text, sizeof(text), "rank %u: %.440s", peer_rank(c, index),
                       err.text);
        settle(c, text);
    }
    return 0;
}

static int on_frame(
    struct control *c, uint32_t index, enum frame_type type, const uint8_t *p, size_t n)
{
    bool root = star_is_root(c);

    switch (type) {
    case FRAME_UP:
        return root ? on_work(c, index, type, p, n) : -EBADMSG;
    case FRAME_DOWN:
        return root ? -EBADMSG : on_work(c, index, type, p, n);
    case FRAME_SUSPECT:
        if (!root)
            return -EBADMSG;
        on_text(c, index, type, p, n);
        return 0;
    case FRAME_ABORT:
    case FRAME_ENDED:
        if (root)
            return -EBADMSG;
        on_text(c, index, type, p, n);
        return 0;
    case FRAME_LEAVE:
        return root ? on_leave(c, index, p, n) : -EBADMSG;
    case FRAME_HEARTBEAT:
        return 0;
    case FRAME_JOIN:
    case FRAME_WELCOME:
    case FRAME_TYPE_END:
        break;
    }
    return -EBADMSG;
}

static void read_peer(struct control *c, uint32_t index, uint64_t now_ns)
{
    struct star_peer *p = &c->peers[index];
    enum frame_type type;
    const uint8_t *data;
    size_t n;
    int r;

    frame_readable(&p->conn);
    while (!c->is_broken && p->conn.fd >= 0) {
        r = frame_recv(&p->conn, &type, &data, &n);
        if (r == 0)
            return;
        p->heard_ns = now_ns;
        if (r > 0)
            r = on_frame(c, index, type, data, n);
        if (r < 0)
            lost(c, index, r);
    }
}

/* --- the pump --- */

static void read_all(struct control *c, uint64_t now_ns)
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
            if (ev[i].events & EPOLLOUT) {
                int r = frame_flush(&c->peers[index].conn);

                if (is_gone(r))
                    read_peer(c, index, now_ns);
                if (r < 0)
                    lost(c, index, r);
                watch(c, index);
            }
            if (ev[i].events & ~(uint32_t)EPOLLOUT)
                read_peer(c, index, now_ns);
        }
    } while (n == EVENTS);
}

static void check_silence(struct control *c, uint64_t now_ns)
{
    uint64_t gap = now_ns - c->pumped_ns;
    uint64_t limit = c->cfg.peer_timeout_ns;

    for (uint32_t i = star_is_root(c) ? 1 : 0; i < c->n_peers; i++) {
        struct star_peer *p = &c->peers[i];
        char name[HOST_NAME_MAX_BYTES + 64], text[480];

        if (p->conn.fd < 0 || p->has_left)
            continue;
        if (gap > 2 * c->beat_every_ns)
            p->heard_ns += gap; /* I4 */
        if (c->is_ended || now_ns < p->heard_ns + limit)
            continue;
        who(c, peer_rank(c, i), name, sizeof(name));
        (void)snprintf(text, sizeof(text),
                       "%s was lost: silent for %.3g s (HVD_PEER_TIMEOUT)", name,
                       (double)limit / 1e9);
        drop(c, p);
        settle(c, text);
        return;
    }
}

int control_pump(struct control *c, struct err *err)
{
    uint64_t now = clock_now_ns();

    for (uint32_t i = 0; c->is_fresh && i < c->n_peers; i++)
        read_peer(c, i, now);
    c->is_fresh = false;
    if (!c->is_broken) {
        read_all(c, now);
        if (c->n_peers > 0)
            check_silence(c, now);
        c->pumped_ns = now;
    }
    if (!c->is_broken && c->n_peers > 0 && now >= c->beat_ns + c->beat_every_ns) {
        c->beat_ns = now;
        (void)tell_all(c, FRAME_HEARTBEAT, NULL, 0); /* failures are settled inside */
    }
    if (!c->is_broken && c->suspect_until_ns > 0 && now >= c->suspect_until_ns)
        settle(c, c->suspicion);
    if (c->is_broken)
        return err_set(err, c->cause.code, "%s", c->cause.text);
    return 0;
}

bool control_peek(const struct control *c)
{
    struct epoll_event ev;

    return epoll_wait(c->epoll_fd, &ev, 1, 0) > 0;
}

uint64_t control_next_ns(const struct control *c)
{
    uint64_t next = UINT64_MAX;

    if (c->n_peers > 0 && !c->is_broken)
        next = c->beat_ns + c->beat_every_ns;
    if (c->suspect_until_ns > 0 && c->suspect_until_ns < next && !c->is_broken)
        next = c->suspect_until_ns;
    return next;
}

int control_up(struct control *c, const void *p, size_t n)
{
    return tell(c, 0, FRAME_UP, p, n);
}

int control_down(struct control *c, const void *p, size_t n)
{
    return tell_all(c, FRAME_DOWN, p, n);
}

/* --- life --- */

int control_open(const struct control_config *cfg,
                 const char *local_addr,
                 struct control **ret,
                 struct err *err)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.u32 = WAKE_TAG};
    struct control *c = mem_zalloc(sizeof(*c));
    uint64_t beat = cfg->peer_timeout_ns / 4;

    if (!c)
        return err_set(err, -ENOMEM, "out of memory");
    c->cfg = *cfg;
    c->tcp_fd = c->unix_fd = -1;
    c->beat_every_ns = beat < BEAT_MIN_NS   ? BEAT_MIN_NS
                       : beat > BEAT_MAX_NS ? BEAT_MAX_NS
                                            : beat;
    c->n_peers = cfg->size == 1 ? 0 : cfg->rank == 0 ? cfg->size : 1;
    c->peers = mem_calloc(c->n_peers + 1, sizeof(*c->peers));
    for (uint32_t i = 0; c->peers && i < c->n_peers; i++)
        frame_init(&c->peers[i].conn);
    c->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!c->peers || c->epoll_fd < 0 || c->wake_fd < 0
        || epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, c->wake_fd, &ev) < 0) {
        int e = c->peers ? errno : ENOMEM;

        control_close(c);
        return err_errno(err, e, "control channel");
    }
    (void)snprintf(c->addr, sizeof(c->addr), "%s", local_addr);
    c->pumped_ns = c->beat_ns = clock_now_ns();
    *ret = c;
    return 0;
}

void control_close(struct control *c)
{
    uint64_t deadline = clock_now_ns() + NS_PER_S;

    if (!c)
        return;
    for (uint32_t i = 0; c->peers && i < c->n_peers; i++) {
        if (c->peers[i].conn.fd >= 0)
            (void)frame_flush_until(&c->peers[i].conn, deadline); /* best effort */
        frame_release(&c->peers[i].conn);
    }
    mem_free(c->peers);
    fd_close(&c->tcp_fd);
    fd_close(&c->unix_fd);
    fd_close(&c->wake_fd);
    fd_close(&c->epoll_fd);
    mem_free(c);
}

void control_forked(struct control *c)
{
    for (uint32_t i = 0; i < c->n_peers; i++)
        if (c->peers[i].conn.fd >= 0)
            (void)close(c->peers[i].conn.fd);
    if (c->tcp_fd >= 0)
        (void)close(c->tcp_fd);
    if (c->unix_fd >= 0)
        (void)close(c->unix_fd);
    (void)close(c->wake_fd);
    (void)close(c->epoll_fd);
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
    uint32_t index = star_is_root(c) ? r : 0;

    if (r == c->cfg.rank)
        return "self";
    if (!star_is_root(c) && r != 0)
        return "via rank 0";
    return index < c->n_peers && c->peers[index].is_unix ? "unix" : "tcp";
}
