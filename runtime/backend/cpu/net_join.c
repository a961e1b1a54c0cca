/* SPDX-License-Identifier: Apache-2.0 */
/* Connecting the mesh of the hosts' leaders.
 *
 * Member i connects to all before it, in order, then accepts all after it. That cannot
 * deadlock: member 0 only accepts, and member i starts to accept once those before it
 * have accepted it. A connection is authenticated (ROLE_DATA both ways), and the rank
 * with it.
 *
 * Called by group.c. */
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

void net_close(struct net *net)
{
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
    const struct auth_claim claim = {.id = j->id,
                                     .mine = ROLE_DATA,
                                     .theirs = ROLE_DATA,
                                     .number = j->ranks[j->me],
                                     .deadline_ns = j->deadline_ns};
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
        if (j->ranks[i] == m->number && a->net->peers[i].fd < 0) {
            join_take_connection(j, &a->net->peers[i], fd, &m->session);
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
        if (net->peers[i].fd < 0)
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
    struct accepting a = {.net = net, .j = j, .n_left = j->n - 1 - j->me};
    CLEANUP(acceptor_close) struct acceptor acceptor = {0};
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

int net_connect(struct net *net,
                const struct net_join *j,
                int listen_fd,
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
    for (uint32_t i = 0; i < j->me && rc == 0; i++)
        rc = join_dial_member(j, i, &net->peers[i], err);
    if (rc == 0)
        rc = join_accept_later_members(net, j, listen_fd, err);
    for (uint32_t i = 0; i < j->n && rc == 0; i++)
        if (i != j->me)
            net_tune(net->peers[i].fd, j->peer_timeout_ns);
    if (rc < 0)
        net_close(net);
    return rc;
}
