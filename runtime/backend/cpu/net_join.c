/* SPDX-License-Identifier: Apache-2.0 */
/* Connecting the mesh of the hosts' leaders.
 *
 * Member i connects to all before it, in order, then accepts all after it. That cannot
 * deadlock: member 0 only accepts, and member i starts to accept once those before it
 * have accepted it. A connection is authenticated (ROLE_DATA both ways), and the rank
 * with it.
 *
 * In a large mesh this happens twice: for neighbours at the start, and for all others in
 * the first collective that needs them. There a barrier comes first, in which a late
 * member is waited for as in any collective; then all are here, and connecting has a
 * deadline of its own.
 *
 * Called by group.c, net_coll.c and net_reduce.c. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "runtime/backend/cpu/net.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/wire/accept.h"

struct net_rest { /* copies */
    struct auth_id id;
    enum data_check check;
    uint64_t peer_timeout_ns;
    uint32_t *ranks;      /* [n] */
    struct peer *by_rank; /* as in struct net_join */
    int listen_fd;
};

static void rest_free(struct net_rest *r)
{
    if (!r)
        return;
    fd_close(&r->listen_fd);
    mem_free(r->ranks);
    mem_free(r->by_rank);
    mem_free(r);
}

void net_close(struct net *net)
{
    rest_free(net->rest);
    for (uint32_t i = 0; net->peers != NULL && i < net->n; i++) {
        fd_close(&net->peers[i].fd);
        block_stream_wipe(&net->peers[i].out);
        block_stream_wipe(&net->peers[i].in);
    }
    mem_free(net->peers);
    mem_free(net->memory);
    mem_free(net->src);
    mem_free(net->lanes);
    mem_free(net->polls);
    memset(net, 0, sizeof(*net));
}

/* Is the distance between two members a power of two, in one direction or the other? */
static bool net_is_neighbour(const struct net *net, uint32_t member)
{
    uint32_t up = (member + net->n - net->me) % net->n, down = net->n - up;

    return (up & (up - 1)) == 0 || (down & (down - 1)) == 0;
}

/* Whether a connection to this member is to be made now. */
static bool join_lacks(const struct net *net, const struct net_join *j, uint32_t member)
{
    if (member == net->me || net->peers[member].fd >= 0)
        return false;
    return j->is_rest || net->n <= NET_FULL_MAX || net_is_neighbour(net, member);
}

/* The connection belongs to the peer from here on. */
static void join_take_connection(const struct net_join *j,
                                 struct net_peer *p,
                                 int fd,
                                 const struct auth_session *keys)
{
    uint32_t mine = j->ranks[j->me];
    p->fd = fd;
    block_stream_init(&p->out, j->check, mine, p->rank, keys->send_key);
    block_stream_init(&p->in, j->check, p->rank, mine, keys->recv_key);
}

struct dialing {
    const struct waiter *w;
    uint32_t rank;
};

static int join_interrupted(void *arg, struct err *err)
{
    const struct dialing *d = arg;
    return d->w->check(d->w->arg, d->rank, err);
}

static int join_dial_member(const struct net_join *j,
                            uint32_t member,
                            struct net_peer *ret,
                            struct err *err)
{
    CLEANUP(auth_session_wipe) struct auth_session keys = {0};
    uint32_t rank = j->ranks[member];
    const struct peer *p = &j->by_rank[rank];
    int fd = -1;
    const struct auth_server server = {p->addr, p->port, .is_patient = true};
    struct dialing dialing = {j->w, rank};
    const struct auth_claim claim = {.id = j->id,
                                     .mine = ROLE_DATA,
                                     .theirs = ROLE_DATA,
                                     .number = j->ranks[j->me],
                                     .deadline_ns = j->deadline_ns,
                                     .interrupted = join_interrupted,
                                     .arg = &dialing};
    int rc = auth_connect(&server, &claim, &fd, &keys, err);
    if (rc < 0)
        return err_prefix(err, "connect to rank %u (host %s)", rank, p->host);
    join_take_connection(j, ret, fd, &keys);
    return 0;
}

struct accepting {
    struct net *net;
    const struct net_join *j;
    uint32_t n_left;
};

static void join_admit_member(void *arg, const struct admitted *m)
{
    struct accepting *a = arg;
    const struct net_join *j = a->j;
    int fd = m->fd;
    for (uint32_t i = j->me + 1; i < j->n; i++)
        if (j->ranks[i] == m->number && join_lacks(a->net, j, i)) {
            join_take_connection(j, &a->net->peers[i], fd, &m->session);
            net_tune(fd, j->peer_timeout_ns);
            a->n_left--;
            return;
        }
    log_warn("data connection refused", "cause=\"rank %u is not expected\"", m->number);
    fd_close(&fd);
}

static int join_report_missing(const struct net *net,
                               const struct net_join *j,
                               const char *why,
                               struct err *err)
{
    char list[120] = "";
    size_t n = 0;
    for (uint32_t i = j->me + 1; i < j->n && n < sizeof(list) - 16; i++)
        if (join_lacks(net, j, i))
            n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%u", n ? ", " : "",
                                  j->ranks[i]);
    return err_set(err, -ETIMEDOUT,
                   "no data connection from rank %s before the start timeout%s%.200s",
                   list, why[0] ? "; last refused: " : "", why);
}

static int join_accept_later_members(struct net *net,
                                     const struct net_join *j,
                                     int listen_fd,
                                     struct err *err)
{
    static const struct accept_kind kind = {
        .name = "data", .mine = ROLE_DATA, .theirs = ROLE_DATA};
    struct accepting a = {.net = net, .j = j};
    CLEANUP(acceptor_close) struct acceptor acceptor = {0};
    for (uint32_t i = j->me + 1; i < j->n; i++)
        a.n_left += join_lacks(net, j, i);
    int rc = a.n_left > 0 ? acceptor_open(&acceptor, &kind, err) : 0;
    if (rc == 0 && a.n_left > 0)
        rc = door_listen(acceptor.door, listen_fd, false, err);
    while (rc == 0 && a.n_left > 0) {
        uint64_t now = clock_now_ns();
        if (now >= j->deadline_ns)
            return join_report_missing(net, j, door_last_refusal(acceptor.door), err);
        rc = j->w->check(j->w->arg, j->ranks[j->me], err);
        if (rc < 0)
            return rc;
        (void)fd_wait(door_fd(acceptor.door), POLLIN,
                      earlier_ns(now + WAIT_SLICE_NS,
                                 door_next_ns(acceptor.door))); /* then check again */
        acceptor_serve(&acceptor, j->id, join_admit_member, &a);
    }
    return rc;
}

static int
join_members(struct net *net, const struct net_join *j, int listen_fd, struct err *err)
{
    int rc = 0;
    for (uint32_t i = 0; i < j->me && rc == 0; i++)
        if (join_lacks(net, j, i)) {
            rc = join_dial_member(j, i, &net->peers[i], err);
            if (rc == 0)
                net_tune(net->peers[i].fd, j->peer_timeout_ns);
        }
    return rc == 0 ? join_accept_later_members(net, j, listen_fd, err) : rc;
}

/* Takes over *listen_fd. */
static int join_keep_rest(struct net *net,
                          const struct net_join *j,
                          int *listen_fd,
                          struct err *err)
{
    struct net_rest *r = mem_zalloc(sizeof(*r));
    if (!r)
        return err_set(err, -ENOMEM, "no memory for the addresses of %u hosts", j->n);
    size_t n_ranks = (size_t)j->ranks[j->n - 1] + 1;
    r->id = *j->id;
    r->check = j->check;
    r->peer_timeout_ns = j->peer_timeout_ns;
    r->listen_fd = -1;
    r->ranks = mem_calloc(j->n, sizeof(*r->ranks));
    r->by_rank = mem_calloc(n_ranks, sizeof(*r->by_rank));
    if (!r->ranks || !r->by_rank) {
        rest_free(r);
        return err_set(err, -ENOMEM, "no memory for the addresses of %u hosts", j->n);
    }
    memcpy(r->ranks, j->ranks, j->n * sizeof(*r->ranks));
    memcpy(r->by_rank, j->by_rank, n_ranks * sizeof(*r->by_rank));
    r->listen_fd = *listen_fd;
    *listen_fd = -1;
    net->rest = r;
    return 0;
}

int net_complete(struct net *net, struct err *err)
{
    struct net_rest *r = net->rest;
    if (!r)
        return 0;
    int rc = net_barrier(net, err);
    if (rc < 0)
        return rc;
    const struct net_join j = {.id = &r->id,
                               .w = net->w,
                               .check = r->check,
                               .deadline_ns = clock_now_ns() + r->peer_timeout_ns,
                               .peer_timeout_ns = r->peer_timeout_ns,
                               .n = net->n,
                               .me = net->me,
                               .ranks = r->ranks,
                               .by_rank = r->by_rank,
                               .is_rest = true};
    rc = join_members(net, &j, r->listen_fd, err);
    if (rc < 0)
        return rc;
    rest_free(r);
    net->rest = NULL;
    return 0;
}

int net_connect(struct net *net,
                const struct net_join *j,
                int *listen_fd,
                struct err *err)
{
    *net = (struct net){.n = j->n, .me = j->me, .w = j->w, .lost = -1};
    net->n_scratch = 3 * (size_t)NET_CHUNK_MIN * j->n;
    if (net->n_scratch < NET_SCRATCH_BYTES)
        net->n_scratch = NET_SCRATCH_BYTES;
    net->peers = mem_calloc(j->n, sizeof(*net->peers));
    net->memory = mem_alloc(net->n_scratch + NET_ALIGN);
    net->src = mem_calloc(j->n, sizeof(*net->src));
    net->lanes = net_lanes_new(j->n);
    net->polls = mem_calloc(j->n, sizeof(*net->polls));
    if (net->memory)
        net->scratch =
            (uint8_t *)net->memory + NET_ALIGN - (uintptr_t)net->memory % NET_ALIGN;
    for (uint32_t i = 0; net->peers != NULL && i < j->n; i++) {
        net->peers[i].fd = -1;
        net->peers[i].rank = j->ranks[i];
        memcpy(net->peers[i].host, j->by_rank[j->ranks[i]].host, PEER_HOST_BYTES);
    }
    int rc = 0;
    if (!net->peers || !net->memory || !net->src || !net->lanes || !net->polls)
        rc = err_set(err, -ENOMEM, "no memory for the connections of %u hosts", j->n);
    if (rc == 0)
        rc = join_members(net, j, *listen_fd, err);
    if (rc == 0 && j->n > NET_FULL_MAX)
        rc = join_keep_rest(net, j, listen_fd, err);
    if (rc < 0)
        net_close(net);
    return rc;
}
