/* SPDX-License-Identifier: Apache-2.0 */
/* A Unix socket between each two members, by abstract names: NAME.RANK, where member
 * RANK listens until all higher ones have connected. A waiting member checks the
 * communicator's abort flag every few milliseconds, and ends the test when nothing has
 * moved for HVD_FAKE_HANG_S: real NCCL would hang forever. */
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/fakes/cuda/nccl_fake.h"

static socklen_t
net_address(const struct nccl_comm_s *c, int rank, struct sockaddr_un *a)
{
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(a->sun_path + 1, sizeof(a->sun_path) - 1, "%s.%d", c->name, rank);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static int socket_new(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        fake_die("socket: %s", strerror(errno));
    return fd;
}

/* 1, 0: not there yet. */
static int try_connect(struct nccl_comm_s *c, int peer)
{
    struct sockaddr_un a;
    socklen_t n = net_address(c, peer, &a);
    int32_t me = c->rank;
    int fd = socket_new();

    if (connect(fd, (struct sockaddr *)&a, n) == 0
        && send(fd, &me, sizeof(me), MSG_NOSIGNAL) == (ssize_t)sizeof(me)) {
        c->fds[peer] = fd;
        return 1;
    }
    (void)close(fd);
    return 0;
}

static int try_accept(struct nccl_comm_s *c, int listener)
{
    struct pollfd p = {listener, POLLIN, 0};
    int32_t peer = -1;

    if (poll(&p, 1, 2) <= 0)
        return 0;
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return 0;
    p = (struct pollfd){fd, POLLIN, 0};
    (void)poll(&p, 1, (int)(1000 * fake_hang_s())); /* it sends with its connect */
    if (recv(fd, &peer, sizeof(peer), 0) != (ssize_t)sizeof(peer) || peer <= c->rank
        || peer >= c->n || c->fds[peer] >= 0)
        fake_die("member %d of %s is there twice, or has another size", peer, c->name);
    c->fds[peer] = fd;
    return 1;
}

int fake_net_join(struct nccl_comm_s *c)
{
    struct sockaddr_un a;
    socklen_t len = net_address(c, c->rank, &a);
    int listener = socket_new(), left = c->n - 1;
    uint64_t give_up = fake_now_us() + fake_hang_s() * 1000000;

    if (fake_fault("init_hang", c->rank, 0)) {
        (void)close(listener);
        fake_hang(c);
        return NCCL_INTERNAL;
    }
    if (bind(listener, (struct sockaddr *)&a, len) != 0 || listen(listener, 64) != 0)
        fake_die("member %d of %s: %s: does another rank use the same number?", c->rank,
                 c->name, strerror(errno));
    for (int peer = 0; left && !fake_is_stopped(c);
         peer = peer < c->rank ? peer + 1 : 0) {
        if (fake_now_us() > give_up)
            fake_die("member %d of %s waits for others to init", c->rank, c->name);
        if (peer < c->rank && c->fds[peer] < 0)
            left -= try_connect(c, peer);
        else if (peer == c->rank)
            left -= try_accept(c, listener);
    }
    (void)close(listener);
    return left ? NCCL_INTERNAL : NCCL_OK;
}

void fake_net_close(struct nccl_comm_s *c)
{
    for (int i = 0; i < c->n; i++) {
        if (c->fds[i] >= 0)
            (void)close(c->fds[i]);
        c->fds[i] = -1;
    }
}

/* --- transfers --- */

static void sign_compare(struct nccl_comm_s *c, const struct fake_xfer *x)
{
    const struct fake_sign *got = x->p;
    char ours[128], theirs[128];

    if (memcmp(got, x->expect, sizeof(*got)) == 0)
        return;
    fake_sign_text(got, theirs, sizeof(theirs));
    fake_sign_text(x->expect, ours, sizeof(ours));
    fake_die(
        "members of %s differ, they would hang: %d expects %s of %d, which does %s",
        c->name, c->rank, ours, x->peer, theirs);
}

/* NCCL_OK also where nothing could be moved now. */
static int xfer_move(struct nccl_comm_s *c, struct fake_xfer *x, bool *ret_moved)
{
    char *p = (char *)x->p + x->at;
    ssize_t k = x->is_send ? send(c->fds[x->peer], p, x->n - x->at, MSG_NOSIGNAL)
                           : recv(c->fds[x->peer], p, x->n - x->at, 0);

    if (k < 0 && (errno == EAGAIN || errno == EINTR))
        return NCCL_OK;
    if (k <= 0) {
        fake_set_error("member %d of %s: lost member %d", c->rank, c->name, x->peer);
        return NCCL_REMOTE;
    }
    x->at += (size_t)k;
    *ret_moved = true;
    if (x->at == x->n && x->expect)
        sign_compare(c, x);
    return NCCL_OK;
}

/* The first of each peer and direction that is not done. */
static size_t find_heads(struct fake_xfer *v, size_t n, struct fake_xfer **ret)
{
    uint64_t sending = 0, receiving = 0;
    size_t n_heads = 0;

    for (size_t i = 0; i < n; i++) {
        uint64_t bit = 1ull << v[i].peer, *seen = v[i].is_send ? &sending : &receiving;

        if (v[i].at == v[i].n || (*seen & bit))
            continue;
        *seen |= bit;
        ret[n_heads++] = &v[i];
    }
    return n_heads;
}

static void tell_hang(struct nccl_comm_s *c, const struct fake_xfer *x)
{
    char what[128] = "data";

    if (x->expect)
        fake_sign_text(x->expect, what, sizeof(what));
    fake_die("member %d of %s waits for member %d (%s) for ever", c->rank, c->name,
             x->peer, what);
}

int fake_net_run(struct nccl_comm_s *c, struct fake_xfer *v, size_t n)
{
    struct fake_xfer *heads[2 * FAKE_MAX_MEMBERS];
    struct pollfd fds[2 * FAKE_MAX_MEMBERS];
    uint64_t give_up = fake_now_us() + fake_hang_s() * 1000000;
    size_t n_heads;
    int rc = NCCL_OK;

    while (!rc && (n_heads = find_heads(v, n, heads)) > 0) {
        bool moved = false;

        if (fake_is_stopped(c))
            return NCCL_INTERNAL;
        for (size_t i = 0; i < n_heads && !rc; i++)
            rc = xfer_move(c, heads[i], &moved);
        if (moved) {
            give_up = fake_now_us() + fake_hang_s() * 1000000;
            continue;
        }
        if (fake_now_us() > give_up)
            tell_hang(c, heads[0]);
        for (size_t i = 0; i < n_heads; i++)
            fds[i] = (struct pollfd){c->fds[heads[i]->peer],
                                     heads[i]->is_send ? POLLOUT : POLLIN, 0};
        (void)poll(fds, n_heads, 2);
    }
    return rc;
}
