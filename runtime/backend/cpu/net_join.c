/* SPDX-License-Identifier: Apache-2.0 */
/* Connecting the mesh of the hosts' leaders.
 *
 * Member i connects to all before it, in order, then accepts all after it. That cannot
 * deadlock: member 0 only accepts, and member i starts to accept once those before it
 * have accepted it. A connection is authenticated (ROLE_DATA both ways), then sends its
 * rank. A connection that fails the handshake is closed and logged, and accepting
 * continues, so a connection from outside the job costs at most AUTH_SLICE_NS.
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

#define AUTH_SLICE_NS (5 * NS_PER_S)

void net_close(struct net *net)
{
    for (uint32_t i = 0; net->peers != NULL && i < net->n; i++)
        fd_close(&net->peers[i].fd);
    mem_free(net->peers);
    mem_free(net->memory);
    mem_free(net->src);
    mem_free(net->lanes);
    mem_free(net->polls);
    memset(net, 0, sizeof(*net));
}

static int join_dial_member(const struct net_join *j,
                            uint32_t member,
                            int *ret_fd,
                            struct err *err)
{
    uint32_t rank = j->ranks[member];
    const struct peer *p = &j->by_rank[rank];
    CLEANUP(fd_close) int fd = -1;
    int rc = tcp_connect(p->addr, p->port, j->deadline_ns, true, &fd, err);
    if (rc == 0)
        rc = auth_client(fd, j->id, ROLE_DATA, ROLE_DATA, j->deadline_ns, NULL, err);
    if (rc == 0) {
        uint32_t mine = j->ranks[j->me];
        rc = fd_write_full(fd, &mine, sizeof(mine), j->deadline_ns);
        if (rc < 0)
            (void)err_errno(err, -rc, "data connection");
    }
    if (rc < 0) {
        (void)err_prefix(err, "connect to rank %u (host %s)", rank, p->host);
        return rc;
    }
    *ret_fd = fd;
    fd = -1;
    return 0;
}

/* Assigns one accepted connection to the member that it proves to be. */
static int
join_accept_member(struct net *net, const struct net_join *j, int fd, struct err *err)
{
    uint64_t until = clock_now_ns() + AUTH_SLICE_NS;
    uint32_t rank = 0;
    until = until < j->deadline_ns ? until : j->deadline_ns;
    int rc = auth_server(fd, j->id, ROLE_DATA, ROLE_DATA, until, NULL, err);
    if (rc < 0)
        return rc;
    rc = fd_read_full(fd, &rank, sizeof(rank), until);
    if (rc < 0)
        return err_errno(err, -rc, "data connection");
    for (uint32_t i = j->me + 1; i < j->n; i++)
        if (j->ranks[i] == rank && net->peers[i].fd < 0) {
            net->peers[i].fd = fd;
            return 0;
        }
    return err_set(err, -EPROTO, "data connection of rank %u is not expected", rank);
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
    struct err why = ERR_INIT;
    for (uint32_t left = j->n - 1 - j->me; left > 0;) {
        uint64_t now = clock_now_ns();
        int fd = -1;
        if (now >= j->deadline_ns)
            return join_report_missing(net, j, why.text, err);
        int rc = j->w->check(j->w->arg, j->ranks[j->me], err);
        if (rc < 0)
            return rc;
        if (tcp_accept(listen_fd, &fd) < 0) {
            (void)fd_wait(listen_fd, POLLIN,
                          now + WAIT_SLICE_NS); /* then check again */
            continue;
        }
        if (join_accept_member(net, j, fd, &why) == 0) {
            left--;
        } else {
            fd_close(&fd);
            log_warn("data connection refused", "cause=\"%s\"", why.text);
        }
    }
    return 0;
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
        rc = join_dial_member(j, i, &net->peers[i].fd, err);
    if (rc == 0)
        rc = join_accept_later_members(net, j, listen_fd, err);
    for (uint32_t i = 0; i < j->n && rc == 0; i++)
        if (i != j->me)
            net_tune(net->peers[i].fd, j->peer_timeout_ns);
    if (rc < 0)
        net_close(net);
    return rc;
}
