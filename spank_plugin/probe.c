/* SPDX-License-Identifier: Apache-2.0 */
/* Called by gate.c. A node is reached when its kernel answers, with a connection or a
 * refusal: a firewall or a missing route does not. What fails for another reason (no
 * descriptor, no port) says nothing about the network and is passed over, as is a node
 * that has sent no address: it has an error of its own.
 *
 * The listener accepts nothing. The kernel completes connections by itself, and a node is
 * asked by PROBE_FAN_IN + 2 others at most. Hellos come from tasks of the same user that
 * have the token. */
#include "spank_plugin/probe.h"

#include <errno.h>
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "runtime/base/addr.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"

#define PROBE_MS     5000u /* the kernel repeats a lost packet after 1 s and 3 s */
#define PROBE_FAN_IN 16u   /* of the tree of control channels */

struct probe_peer {
    uint32_t node;
    char name[HOST_NAME_MAX_BYTES], address[64];
    uint16_t port;
    int fd;
    int errnum; /* -1: still unknown */
};

/* --- which nodes ask which ---------------------------------------------------------------- */

uint32_t probe_peers(uint32_t node, uint32_t n_nodes, uint32_t ret[PROBE_MAX_PEERS])
{
    const uint32_t all[PROBE_MAX_PEERS] = {(node + 1) % n_nodes,
                                           (node + n_nodes - 1) % n_nodes,
                                           node ? (node - 1) / PROBE_FAN_IN : 0};
    uint32_t n = 0;

    for (uint32_t i = 0; i < PROBE_MAX_PEERS; i++) {
        bool is_new = all[i] != node;

        for (uint32_t k = 0; k < n; k++)
            is_new = is_new && ret[k] != all[i];
        if (is_new)
            ret[n++] = all[i];
    }
    return n;
}

/* --- hellos ----------------------------------------------------------------------- */

void probe_open(struct probe *r,
                const struct contract *c,
                const char *local,
                char hello[PROBE_HELLO_MAX])
{
    uint16_t port;

    hello[0] = '\0';
    if (c->place.local_rank != 0 || c->place.cross_size < 2)
        return;
    r->node = c->place.cross_rank; /* all nodes have a local rank 0 */
    r->n_nodes = c->place.cross_size;
    (void)snprintf(r->name, sizeof(r->name), "%s", c->hostname);
    (void)snprintf(r->address, sizeof(r->address), "%s", local);
    if ((*c->iface && addr_of_iface(c->iface, r->address, sizeof(r->address), NULL))
        || tcp_listen(r->address, 0, &r->listen_fd, &port, NULL))
        return;
    (void)snprintf(hello, PROBE_HELLO_MAX, "%u %s %u %s", r->node, r->address, port,
                   r->name);
}

static bool is_address(const char *text)
{
    struct in6_addr any;

    return inet_pton(AF_INET, text, &any) == 1 || inet_pton(AF_INET6, text, &any) == 1;
}

static bool hello_parse(const uint8_t *p, uint32_t n, struct probe_peer *ret)
{
    char text[PROBE_HELLO_MAX];
    unsigned port;

    if (n == 0 || n >= sizeof(text))
        return false;
    memcpy(text, p, n);
    text[n] = '\0';
    *ret = (struct probe_peer){.fd = -1, .errnum = -1};
    if (sscanf(text, "%u %63s %5u %255s", &ret->node, ret->address, &port, ret->name)
            != 4
        || port == 0 || port > UINT16_MAX || !is_address(ret->address))
        return false;
    ret->port = (uint16_t)port;
    return true;
}

/* --- connecting ------------------------------------------------------------------- */

/* Whether it says that packets do not arrive. */
static bool is_unreachable(int errnum)
{
    return errnum == ETIMEDOUT || errnum == EHOSTUNREACH || errnum == ENETUNREACH
           || errnum == EACCES || errnum == EPERM;
}

static void peers_begin(struct probe_peer *peers, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct probe_peer *p = &peers[i];
        int rc = tcp_connect_begin(p->address, p->port, &p->fd, NULL);

        if (rc < 0)
            p->errnum = -rc;
    }
}

/* Waits for the sockets that are still unknown; false: the time is over. */
static bool peers_wait(struct probe_peer *peers, uint32_t n, uint64_t deadline_ns)
{
    struct pollfd polled[PROBE_MAX_PEERS];
    int left_ms = clock_left_ms(deadline_ns);

    for (uint32_t i = 0; i < n; i++)
        polled[i] = (struct pollfd){.fd = peers[i].errnum < 0 ? peers[i].fd : -1,
                                    .events = POLLOUT};
    int rc = poll(polled, n, left_ms);
    if (rc < 0)
        return errno == EINTR;
    for (uint32_t i = 0; rc > 0 && i < n; i++)
        if (polled[i].fd >= 0 && polled[i].revents)
            peers[i].errnum = -tcp_connect_result(polled[i].fd);
    return rc > 0 || left_ms > 0;
}

static bool peers_are_known(const struct probe_peer *peers, uint32_t n)
{
    bool are_known = true;

    for (uint32_t i = 0; i < n; i++)
        are_known = are_known && peers[i].errnum >= 0;
    return are_known;
}

/* The pair in the order of its nodes, so that both ends say the same. */
static int
refuse_pair(const struct probe *r, const struct probe_peer *p, struct err *err)
{
    bool is_first = r->node < p->node;

    return err_set(err, -EHOSTUNREACH,
                   "%.100s and %.100s cannot connect to each other, between %s and %s: "
                   "%s; --hvd=iface= selects another network",
                   is_first ? r->name : p->name, is_first ? p->name : r->name,
                   is_first ? r->address : p->address,
                   is_first ? p->address : r->address, strerror(p->errnum));
}

int probe_check(const struct probe *r,
                uint8_t *const *hellos,
                const uint32_t *sizes,
                uint32_t n,
                struct err *err)
{
    uint64_t deadline_ns = clock_now_ns() + PROBE_MS * NS_PER_MS;
    struct probe_peer peers[PROBE_MAX_PEERS], peer;
    uint32_t nodes[PROBE_MAX_PEERS], n_peers = 0;
    int rc = 0;

    if (r->listen_fd < 0)
        return 0;
    uint32_t n_nodes = probe_peers(r->node, r->n_nodes, nodes);
    for (uint32_t i = 0; i < n && n_peers < PROBE_MAX_PEERS; i++)
        if (hello_parse(hellos[i], sizes[i], &peer))
            for (uint32_t k = 0; k < n_nodes; k++)
                if (nodes[k] == peer.node && n_peers < PROBE_MAX_PEERS)
                    peers[n_peers++] = peer;
    peers_begin(peers, n_peers);
    while (!peers_are_known(peers, n_peers))
        if (!peers_wait(peers, n_peers, deadline_ns))
            break;
    for (uint32_t i = 0; i < n_peers; i++) {
        fd_close(&peers[i].fd);
        if (peers[i].errnum < 0)
            peers[i].errnum = ETIMEDOUT;
        if (!rc && is_unreachable(peers[i].errnum))
            rc = refuse_pair(r, &peers[i], err);
    }
    return rc;
}

void probe_close(struct probe *r)
{
    fd_close(&r->listen_fd);
}
