/* SPDX-License-Identifier: Apache-2.0 */
/* The options of a data connection. They only affect speed: when the kernel refuses
 * one, the connection still works.
 *
 * <linux/tcp.h> instead of <netinet/tcp.h>, which in old libraries lacks fields that we
 * read. Called by net_join.c. */
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

#include "runtime/backend/cpu/net.h"
#include "runtime/base/clock.h"

#define SHORT_RTT_US 500

static void set_int(int fd, int level, int name, int value)
{
    (void)setsockopt(fd, level, name, &value, sizeof(value)); /* tuning only */
}

/* Measured since the connection was established; UINT32_MAX where the kernel does not
 * report it. */
static uint32_t shortest_rtt_us(int fd)
{
    struct tcp_info info = {0};
    socklen_t n = sizeof(info);
    const size_t needs = offsetof(struct tcp_info, tcpi_min_rtt) + sizeof(uint32_t);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) != 0 || n < needs)
        return UINT32_MAX;
    return info.tcpi_min_rtt;
}

/* A paced congestion control (BBR) sends 64 KiB per timer tick: on a line as short as
 * within a rack that loses up to half of the bandwidth. There we select an unpaced one;
 * elsewhere the administrator's choice stays. */
static void socket_disable_pacing(int fd)
{
    static const char *const unpaced[] = {"cubic", "reno"}; /* reno is always allowed */
    char name[16] = "";
    socklen_t n = sizeof(name) - 1;
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &n) != 0
        || strncmp(name, "bbr", 3) != 0 || shortest_rtt_us(fd) > SHORT_RTT_US)
        return;
    for (size_t i = 0; i < sizeof(unpaced) / sizeof(*unpaced); i++)
        if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, unpaced[i],
                       (socklen_t)strlen(unpaced[i]))
            == 0)
            return;
}

/* Data that stays unacknowledged, or a silent connection that does not answer probes,
 * for peer_timeout_ns counts as a lost host. A live but idle process answers: its
 * kernel does. */
void net_tune(int fd, uint64_t peer_timeout_ns)
{
    uint64_t s = peer_timeout_ns / NS_PER_S;
    s = s < 3 ? 3 : s > 3600 ? 3600 : s;
    socket_disable_pacing(fd);
    set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, (int)(s / 3));
    set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, (int)(s / 3));
    set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, 2);
    set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, (int)(s * 1000));
}
