/* SPDX-License-Identifier: Apache-2.0 */
/* Full-duplex transfers over the mesh.
 *
 * One loop moves bytes in both directions until both are done: it never blocks in
 * send() while the peer blocks in send() to us, so full socket buffers cannot deadlock.
 * It tries without blocking first (a busy loop of n_spins rounds, none where CPUs are
 * short), then sleeps in poll(), asking waiter.check() every WAIT_SLICE_NS.
 *
 * There is no time limit of its own: a rank that is merely late is waited for. A dead
 * host's silence is found by the kernel (TCP_USER_TIMEOUT and keepalive, set in
 * net_join.c) and by the control channel.
 *
 * A failure names the peer: "lost rank 3 (host b): connection closed". Called by
 * net_coll.c and agree.c. */
#include "runtime/backend/cpu/net.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include "runtime/base/clock.h"
#include "runtime/base/mem.h"

#define XFER_IOV   64
#define XFER_CHUNK (256u << 10) /* per call, so that both directions get their turn */
/* A failed recv() costs as much as that many turns of an idle loop. */
#define SPIN_DIV   4

/* Where received bytes go: straight to the cursor, or through scratch into a sum. */
struct sink {
    struct cursor *c;
    const struct kernel *k; /* NULL: cursor */
    uint8_t *acc, *scratch;
    uint64_t n_filled;
};

static int lost(struct net *net, uint32_t member, int errnum, struct err *err)
{
    struct net_peer *p = &net->peers[member];
    net->lost = p->rank;
    if (errnum == 0)
        return err_set(err, -ECONNRESET, "lost rank %u (host %s): connection closed",
                       p->rank, p->host);
    return err_errno(err, errnum, "lost rank %u (host %s)", p->rank, p->host);
}

static bool is_transient(int errnum)
{
    return errnum == EAGAIN || errnum == EINTR;
}

int64_t
net_send_now(struct net *net, uint32_t to, const void *p, size_t n, struct err *err)
{
    ssize_t m = send(net->peers[to].fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (m < 0)
        return is_transient(errno) ? 0 : lost(net, to, errno, err);
    return m;
}

int64_t net_recv_now(struct net *net, uint32_t from, void *p, size_t n, struct err *err)
{
    ssize_t m = recv(net->peers[from].fd, p, n, MSG_DONTWAIT);
    if (m == 0)
        return lost(net, from, 0, err);
    if (m < 0)
        return is_transient(errno) ? 0 : lost(net, from, errno, err);
    return m;
}

/* Bytes sent, 0 when the socket is full, -errno. */
static int64_t send_some(
    struct net *net, uint32_t to, struct cursor *c, uint64_t left, struct err *err)
{
    struct iovec iov[XFER_IOV];
    struct msghdr m = {.msg_iov = iov};
    m.msg_iovlen =
        cursor_iov(c, 1, iov, XFER_IOV, left < XFER_CHUNK ? left : XFER_CHUNK);
    ssize_t n = sendmsg(net->peers[to].fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0)
        return is_transient(errno) ? 0 : lost(net, to, errno, err);
    cursor_skip(c, (uint64_t)n);
    return n;
}

static void sink_flush(struct sink *s, bool is_last)
{
    uint64_t m = s->n_filled / s->k->elem_bytes;
    const void *src[2] = {s->acc, s->scratch};
    struct finish f = FINISH_NONE;
    if (m == 0 || (!is_last && s->n_filled < NET_SCRATCH_BYTES))
        return;
    s->k->sum(s->acc, NULL, src, 2, m, &f);
    s->acc += m * s->k->elem_bytes;
    s->n_filled = 0; /* scratch is a multiple of every element */
}

static int64_t recv_some(
    struct net *net, uint32_t from, struct sink *s, uint64_t left, struct err *err)
{
    struct iovec iov[XFER_IOV];
    struct msghdr m = {.msg_iov = iov};
    if (s->k == NULL) {
        m.msg_iovlen =
            cursor_iov(s->c, 0, iov, XFER_IOV, left < XFER_CHUNK ? left : XFER_CHUNK);
    } else {
        uint64_t room = NET_SCRATCH_BYTES - s->n_filled;
        iov[0] = (struct iovec){s->scratch + s->n_filled, left < room ? left : room};
        m.msg_iovlen = 1;
    }
    ssize_t n = recvmsg(net->peers[from].fd, &m, MSG_DONTWAIT);
    if (n == 0)
        return lost(net, from, 0, err);
    if (n < 0)
        return is_transient(errno) ? 0 : lost(net, from, errno, err);
    if (s->k == NULL) {
        cursor_skip(s->c, (uint64_t)n);
    } else {
        s->n_filled += (uint64_t)n;
        sink_flush(s, (uint64_t)n == left);
    }
    return n;
}

static int sleep_until_ready(struct net *net,
                             uint32_t to,
                             bool is_sending,
                             uint32_t from,
                             bool is_receiving,
                             struct patience *patience,
                             struct err *err)
{
    struct pollfd p[2];
    nfds_t n = 0;
    if (is_sending)
        p[n++] = (struct pollfd){.fd = net->peers[to].fd, .events = POLLOUT};
    if (is_receiving && is_sending && to == from)
        p[0].events |= POLLIN;
    else if (is_receiving)
        p[n++] = (struct pollfd){.fd = net->peers[from].fd, .events = POLLIN};
    (void)poll(p, n, (int)(WAIT_SLICE_NS / 1000000)); /* whatever it says, try again */
    return wait_check(net->w, patience, net->peers[is_receiving ? from : to].rank, err);
}

static int xfer(struct net *net,
                uint32_t to,
                struct cursor *send,
                uint64_t n_send,
                uint32_t from,
                struct sink *sink,
                uint64_t n_recv,
                struct err *err)
{
    uint32_t idle = 0;
    uint64_t until = 0; /* when yielding ends and sleeping begins */
    struct patience patience = {0};
    while (n_send > 0 || n_recv > 0) {
        int64_t out = 0, in = 0;
        if (n_send > 0)
            out = send_some(net, to, send, n_send, err);
        if (out < 0)
            return (int)out;
        if (n_recv > 0)
            in = recv_some(net, from, sink, n_recv, err);
        if (in < 0)
            return (int)in;
        n_send -= (uint64_t)out;
        n_recv -= (uint64_t)in;
        if (out > 0 || in > 0) {
            idle = 0;
            patience = (struct patience){0};
            continue;
        }
        if (idle++ < net->w->n_spins / SPIN_DIV)
            continue;
        uint64_t now = clock_now_ns();
        if (idle == net->w->n_spins / SPIN_DIV + 1)
            until = now + WAIT_YIELD_NS;
        if (now < until) {
            sched_yield();
            continue;
        }
        int rc =
            sleep_until_ready(net, to, n_send > 0, from, n_recv > 0, &patience, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int net_xfer(struct net *net,
             uint32_t to,
             struct cursor *send,
             uint64_t n_send,
             uint32_t from,
             struct cursor *recv,
             uint64_t n_recv,
             struct err *err)
{
    struct sink s = {.c = recv};
    return xfer(net, to, send, n_send, from, &s, n_recv, err);
}

int net_xfer_sum(struct net *net,
                 uint32_t to,
                 const void *send,
                 uint64_t n_send,
                 uint32_t from,
                 void *acc,
                 uint64_t n_recv,
                 const struct kernel *k,
                 struct err *err)
{
    struct piece p = {.in = send, .n = n_send};
    struct vec v = vec_of(&p, 1);
    struct cursor c = cursor_at(&v);
    struct sink s = {.k = k, .acc = acc, .scratch = net->scratch};
    return xfer(net, to, &c, n_send, from, &s, n_recv, err);
}
