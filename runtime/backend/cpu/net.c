/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers over the mesh.
 *
 * Every connection has two flows, one per direction: a position in a vector and the
 * number of bytes to move. They are moved in blocks (net_block.h), one per call: padding,
 * header and data are one iovec, because both ends know all lengths. A block that was
 * received is checked before anything reads it: its flow is not empty before. One loop serves all flows until all are empty: it never
 * blocks in send() while the peer blocks in send() to us, so full socket buffers cannot
 * deadlock. An operation that depends on received data (a sum is sent when all its
 * summands have arrived) refills flows from advance().
 *
 * The loop tries without blocking and yields between idle rounds. It does not spin: an
 * idle recv() costs more than a yield, and the peer may need this CPU. Then it sleeps
 * in poll(), calling waiter.check() every WAIT_SLICE_NS. With more than FEW flows it
 * uses poll() to select sockets, because an idle recv() costs as much.
 *
 * It has no time limit: a late rank is waited for. A dead host's silence is detected by
 * the kernel (TCP_USER_TIMEOUT and keepalive, set in net_join.c) and by the control
 * channel.
 *
 * A failure names the peer: "lost rank 3 (host b): connection closed". Called by
 * net_coll.c, net_reduce.c, transfer.c and agree.c. */
#include "runtime/backend/cpu/net.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include "runtime/base/clock.h"

#define XFER_IOV  64 /* of data */
#define FEW       4  /* flows that are tried without poll() */
#define LEAD_FROM (32u << 10)

static int
net_member_lost(struct net *net, uint32_t member, int errnum, struct err *err)
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
        return is_transient(errno) ? 0 : net_member_lost(net, to, errno, err);
    return m;
}

int64_t net_recv_now(struct net *net, uint32_t from, void *p, size_t n, struct err *err)
{
    ssize_t m = recv(net->peers[from].fd, p, n, MSG_DONTWAIT);
    if (m == 0)
        return net_member_lost(net, from, 0, err);
    if (m < 0)
        return is_transient(errno) ? 0 : net_member_lost(net, from, errno, err);
    return m;
}

int net_data_wrong(const struct net *net,
                   uint32_t from,
                   const struct err *why,
                   struct err *err)
{
    const struct net_peer *p = &net->peers[from];
    return err_set(err, why->code, "the data from rank %u (host %s) %s", p->rank,
                   p->host, why->text);
}

/* The bytes of the next block if the last one is complete, else 0. */
static uint32_t flow_begin_block(struct net_flow *f)
{
    if (f->in_block > 0 || f->tail > 0 || f->left == 0)
        return 0;
    f->in_block = f->left < BLOCK_MAX_BYTES ? (uint32_t)f->left : BLOCK_MAX_BYTES;
    f->head = BLOCK_HEADER_BYTES;
    f->tail = -f->in_block % NET_ALIGN;
    return f->in_block;
}

/* The rest of the block, or as much as one call may move. header: ends with the bytes to
 * be moved. */
static size_t flow_describe(const struct net_flow *f,
                            bool is_out,
                            uint8_t *header,
                            uint8_t *pad,
                            struct iovec *iov)
{
    uint64_t left = f->in_block;
    size_t n = 0, n_data;
    if (f->lead > 0)
        iov[n++] = (struct iovec){.iov_base = pad, .iov_len = f->lead};
    if (f->head > 0)
        iov[n++] = (struct iovec){.iov_base = header + BLOCK_HEADER_BYTES - f->head,
                                  .iov_len = f->head};
    n_data = cursor_iov(&f->at, !is_out, iov + n, XFER_IOV, left);
    for (; n_data > 0; n_data--)
        left -= iov[n++].iov_len;
    if (left == 0 && f->tail > 0)
        iov[n++] = (struct iovec){.iov_base = pad, .iov_len = f->tail};
    return n;
}

static uint32_t take_bytes(uint32_t *left, uint64_t *n)
{
    uint32_t m = *n < *left ? (uint32_t)*n : *left;
    *left -= m;
    *n -= m;
    return m;
}

static void flow_advance(struct net_flow *f, uint64_t n)
{
    (void)take_bytes(&f->lead, &n);
    (void)take_bytes(&f->head, &n);
    uint32_t data = take_bytes(&f->in_block, &n);
    cursor_skip(&f->at, data);
    f->left -= data;
    f->tail -= (uint32_t)n;
}

/* Bytes sent, 0 when the socket is full, -errno. */
static int64_t send_some(struct net *net, uint32_t to, struct err *err)
{
    struct net_peer *p = &net->peers[to];
    struct net_flow *f = &p->send;
    uint32_t begun = flow_begin_block(f);
    if (begun > 0)
        block_write_header(&p->out, net->subject, &f->at, f->is_out, begun);
    struct iovec iov[XFER_IOV + 3];
    struct msghdr m = {
        .msg_iov = iov,
        .msg_iovlen = flow_describe(f, f->is_out, p->out.header, net->lead_out, iov)};
    ssize_t n = sendmsg(p->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0)
        return is_transient(errno) ? 0 : net_member_lost(net, to, errno, err);
    flow_advance(f, (uint64_t)n);
    return n;
}

/* n bytes of the block have arrived. */
static int
flow_receive(struct net_flow *f, struct block_stream *in, uint64_t n, struct err *err)
{
    (void)take_bytes(&f->lead, &n);
    if (take_bytes(&f->head, &n) > 0 && f->head == 0) {
        int rc = block_check_header(in, err);
        if (rc < 0)
            return rc;
    }
    uint32_t data = take_bytes(&f->in_block, &n);
    block_add_at(in, &f->at, data);
    cursor_skip(&f->at, data);
    f->left -= data;
    f->tail -= (uint32_t)n;
    if (data == 0 || f->in_block > 0)
        return 0;
    f->done += in->n_bytes;
    return block_check_data(in, err);
}

static int64_t recv_some(struct net *net, uint32_t from, struct err *err)
{
    struct net_peer *p = &net->peers[from];
    struct net_flow *f = &p->recv;
    uint32_t begun = flow_begin_block(f);
    if (begun > 0)
        block_announce(&p->in, net->subject, begun);
    struct iovec iov[XFER_IOV + 3];
    struct msghdr m = {.msg_iov = iov,
                       .msg_iovlen =
                           flow_describe(f, true, p->in.header, net->lead_in, iov)};
    ssize_t n = recvmsg(p->fd, &m, MSG_DONTWAIT);
    if (n == 0)
        return net_member_lost(net, from, 0, err);
    if (n < 0)
        return is_transient(errno) ? 0 : net_member_lost(net, from, errno, err);
    struct err why = ERR_INIT;
    int rc = flow_receive(f, &p->in, (uint64_t)n, &why);
    return rc < 0 ? net_data_wrong(net, from, &why, err) : n;
}

/* Fills polls, one entry a member. Returns the number of flows that are not empty. */
static uint32_t list_flows(struct net *net)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < net->n; i++) {
        const struct net_peer *p = &net->peers[i];
        bool sends = !net_flow_is_empty(&p->send), recvs = !net_flow_is_empty(&p->recv);
        short events = (short)((sends ? POLLOUT : 0) | (recvs ? POLLIN : 0));
        n += (uint32_t)sends + (uint32_t)recvs;
        net->polls[i] = (struct pollfd){
            .fd = events ? p->fd : -1, .events = events, .revents = events};
    }
    return n;
}

/* One round over the flows that `polls` reports ready. Returns bytes moved or -errno.
 * */
static int64_t move_all(struct net *net, struct err *err)
{
    int64_t n_moved = 0;
    for (uint32_t i = 0; i < net->n; i++) {
        uint32_t k = (net->me + i) % net->n; /* members start with different peers */
        const struct net_peer *p = &net->peers[k];
        short may = net->polls[k].revents;
        int64_t n = 0;
        if (!net_flow_is_empty(&p->send) && may & (POLLOUT | POLLERR | POLLHUP))
            n = send_some(net, k, err);
        if (n < 0)
            return n;
        n_moved += n;
        n = 0;
        if (!net_flow_is_empty(&p->recv) && may & (POLLIN | POLLERR | POLLHUP))
            n = recv_some(net, k, err);
        if (n < 0)
            return n;
        n_moved += n;
    }
    return n_moved;
}

struct idle {          /* for how long nothing has moved */
    uint64_t until_ns; /* when yielding ends and sleeping begins */
    struct patience patience;
};

static int sleep_until_ready(struct net *net, struct idle *idle, struct err *err)
{
    uint32_t rank = net->peers[net->me].rank;
    for (uint32_t i = 0; i < net->n; i++)
        if (net->polls[i].events != 0)
            rank = net->peers[i].rank;
    /* whatever it returns, try again */
    (void)poll(net->polls, net->n, (int)(WAIT_SLICE_NS / 1000000));
    return wait_check(net->w, &idle->patience, rank, err);
}

static int net_yield_or_sleep(struct net *net, struct idle *idle, struct err *err)
{
    uint64_t now = clock_now_ns();
    if (idle->until_ns == 0)
        idle->until_ns = now + WAIT_YIELD_NS;
    if (now >= idle->until_ns)
        return sleep_until_ready(net, idle, err);
    sched_yield();
    return 0;
}

int net_run(struct net *net, void (*advance)(void *arg), void *arg, struct err *err)
{
    struct idle idle = {0};
    uint32_t n_flows;
    if (advance)
        advance(arg);
    while ((n_flows = list_flows(net)) > 0) {
        if (n_flows > FEW)
            (void)poll(net->polls, net->n, 0);
        int64_t n = move_all(net, err);
        if (n < 0)
            return (int)n;
        if (n == 0) {
            int rc = net_yield_or_sleep(net, &idle, err);
            if (rc < 0)
                return rc;
            continue;
        }
        idle = (struct idle){0};
        if (advance)
            advance(arg);
    }
    return 0;
}

int net_run_once(struct net *net, bool *ret_moved, struct err *err)
{
    if (list_flows(net) == 0)
        return 0;
    int64_t n = move_all(net, err);
    *ret_moved = n > 0;
    return n < 0 ? (int)n : 1;
}

void net_send(struct net *net, uint32_t to, const struct cursor *c, uint64_t n)
{
    struct net_flow *f = &net->peers[to].send;
    *f = (struct net_flow){.at = *c, .left = n, .lead = f->lead};
}

void net_recv(struct net *net, uint32_t from, const struct cursor *c, uint64_t n)
{
    struct net_flow *f = &net->peers[from].recv;
    *f = (struct net_flow){.at = *c, .left = n, .lead = f->lead};
}

/* Why: the kernel copies what we send into pages one after another, from the start of a
 * page when all data sent before has been read, and within one machine it is copied
 * from there to its destination. Copying between addresses with about the same offset
 * in a page takes up to three times as long (the CPU takes them for overlapping), and
 * large tensors start at a page boundary as well: therefore the lead. Between addresses
 * that differ by no multiple of NET_ALIGN it takes up to twice as long: therefore the
 * tails. */
uint32_t net_lead_bytes(uint64_t n)
{
    return n < LEAD_FROM ? 0 : NET_LEAD_BYTES;
}

void net_lead(struct net *net, uint32_t member, uint64_t n_send, uint64_t n_recv)
{
    net->peers[member].send.lead = net_lead_bytes(n_send);
    net->peers[member].recv.lead = net_lead_bytes(n_recv);
}

void net_queue_send(struct net *net, uint32_t to, const struct vec *v)
{
    struct cursor c = cursor_at(v);
    net_lead(net, to, v->n_bytes, 0);
    net_send(net, to, &c, v->n_bytes);
}

void net_queue_receive(struct net *net, uint32_t from, const struct vec *v)
{
    struct cursor c = cursor_at(v);
    net_lead(net, from, 0, v->n_bytes);
    net_recv(net, from, &c, v->n_bytes);
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
    net_send(net, to, send, n_send);
    net_recv(net, from, recv, n_recv);
    int rc = net_run(net, NULL, NULL, err);
    if (n_send > 0)
        *send = net->peers[to].send.at;
    if (n_recv > 0)
        *recv = net->peers[from].recv.at;
    return rc;
}
