/* SPDX-License-Identifier: Apache-2.0 */
/* The address on the route to the rendezvous is the right one, with one exception: a
 * rank on the rendezvous' own host may have reached it through loopback (Debian maps a
 * host's own name to 127.0.1.1), where other ranks cannot reach it. world.c then uses
 * the address on the route to another member. */
#include "runtime/base/addr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/base/strbuf.h"

bool addr_is_loopback(const char *addr)
{
    return strncmp(addr, "127.", 4) == 0 || strcmp(addr, "::1") == 0
           || strncmp(addr, "::ffff:127.", 11) == 0;
}

int addr_towards(const char *peer, char *ret, size_t size, struct err *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM, .ai_flags = AI_NUMERICHOST},
                    *ai;
    CLEANUP(fd_close) int fd = -1;
    int rc = getaddrinfo(peer, "9", &hints, &ai);

    if (rc != 0)
        return err_set(err, -EINVAL, "\"%s\" is not a numeric address", peer);
    fd = socket(ai->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    rc = fd < 0 || connect(fd, ai->ai_addr, ai->ai_addrlen) < 0 ? -errno : 0;
    freeaddrinfo(ai);
    if (rc == 0)
        rc = tcp_local_addr(fd, ret, size);
    return rc < 0 ? err_errno(err, -rc, "no route to %s", peer) : 0;
}

static int text_of(const struct sockaddr *sa, char *ret, size_t size)
{
    socklen_t len = sa->sa_family == AF_INET ? sizeof(struct sockaddr_in)
                                             : sizeof(struct sockaddr_in6);

    return getnameinfo(sa, len, ret, (socklen_t)size, NULL, 0, NI_NUMERICHOST) == 0
               ? 0
               : -EINVAL;
}

int addr_of_iface(const char *name, char *ret, size_t size, struct err *err)
{
    CLEANUP(strbuf_release) struct strbuf seen = {0};
    struct ifaddrs *all;
    int rc = -ENODEV;

    if (getifaddrs(&all) < 0)
        return err_errno(err, errno, "getifaddrs");
    strbuf_init(&seen, 200);
    for (int family = AF_INET; rc < 0; family = AF_INET6) {
        for (const struct ifaddrs *i = all; i && rc < 0; i = i->ifa_next) {
            if (!i->ifa_addr || i->ifa_addr->sa_family != family)
                continue;
            if (strcmp(i->ifa_name, name) == 0)
                rc = text_of(i->ifa_addr, ret, size);
            else if (!strstr(strbuf_str(&seen), i->ifa_name))
                strbuf_printf(&seen, "%s%s", seen.n ? ", " : "", i->ifa_name);
        }
        if (family == AF_INET6)
            break;
    }
    freeifaddrs(all);
    if (rc < 0)
        return err_set(
            err, rc,
            "HOROVOD_GLOO_IFACE: no interface \"%s\" with an address, there are %s",
            name, strbuf_str(&seen));
    return 0;
}

/* Loopback and addresses that need a scope are of no use elsewhere. */
static bool is_for_others(const struct ifaddrs *i, int family)
{
    const uint8_t *v6;

    if (!i->ifa_addr || i->ifa_addr->sa_family != family || !(i->ifa_flags & IFF_UP)
        || (i->ifa_flags & IFF_LOOPBACK))
        return false;
    if (family == AF_INET)
        return true;
    v6 = ((const struct sockaddr_in6 *)(const void *)i->ifa_addr)->sin6_addr.s6_addr;
    return v6[0] != 0xfe || (v6[1] & 0xc0) != 0x80; /* link-local; musl's macro casts */
}

int addr_list(const char *name, char *ret, size_t size, struct err *err)
{
    static const int families[] = {AF_INET, AF_INET6};
    struct ifaddrs *all;
    size_t n = 0;

    ret[0] = '\0';
    if (name[0])
        return addr_of_iface(name, ret, size, err);
    if (getifaddrs(&all) < 0)
        return err_errno(err, errno, "getifaddrs");
    for (size_t f = 0; f < ARRAY_LEN(families); f++) {
        for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
            char one[64];

            if (!is_for_others(i, families[f]) || text_of(i->ifa_addr, one, sizeof(one))
                || n + strlen(one) + 2 > size)
                continue;
            if (n > 0)
                ret[n++] = ',';
            memcpy(ret + n, one, strlen(one) + 1);
            n += strlen(one);
        }
    }
    freeifaddrs(all);
    return 0;
}
