/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses are taken from connections that exist: ssh passes both ends to the agent
 * (SSH_CONNECTION), and the socket of serve has them. Otherwise (HVD_SSH is another
 * program) they are those of the route to the host's name. Nothing is probed. Called by
 * remote.c and elastic_job.c. */
#include "runtime/launch/remote_address.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>

#include "runtime/base/addr.h"

/* Finds the numeric address of a name and ours on the route to it. */
static void route_find(const char *name, char *ret_theirs, char *ret_ours)
{
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *ai;
    char text[HOST_NAME_MAX_BYTES];
    if (getaddrinfo(name, NULL, &hints, &ai) != 0)
        return;
    if (getnameinfo(ai->ai_addr, ai->ai_addrlen, text, sizeof(text), NULL, 0,
                    NI_NUMERICHOST)
            == 0
        && addr_towards(text, ret_ours, HOST_NAME_MAX_BYTES, NULL) == 0)
        (void)snprintf(ret_theirs, HOST_NAME_MAX_BYTES, "%s", text);
    freeaddrinfo(ai);
}

int remote_address_launcher(const char *iface,
                            const char *name,
                            struct errand_ready *ready,
                            char ret[HOST_NAME_MAX_BYTES],
                            struct err *err)
{
    if (!*ready->theirs || !*ready->own)
        route_find(name, ready->own, ready->theirs);
    (void)snprintf(ret, HOST_NAME_MAX_BYTES, "%s", ready->theirs);
    if (iface) {
        int rc = addr_of_iface(iface, ret, HOST_NAME_MAX_BYTES, err);
        if (rc < 0)
            return err_prefix(err, "--network-interfaces"), rc;
    }
    if (!*ret)
        return err_set(err, -EHOSTUNREACH,
                       "host %s: the address by which it reaches this host is "
                       "unknown: select an interface with --network-interfaces",
                       name);
    return 0;
}

int remote_address_find(struct remote_hosts *h, const char *iface, struct err *err)
{
    const struct hostlist *list = h->list;
    struct remote_host *all = h->v;
    uint32_t local = h->local;
    const char *outside = NULL; /* our address as another host sees it */
    for (uint32_t i = 0; i < list->n; i++) {
        struct remote_host *p = &all[i];
        if (i == local)
            continue;
        int rc = remote_address_launcher(iface, list->v[i].name, &p->ready, p->launcher,
                                         err);
        if (rc < 0)
            return rc;
        if (!outside)
            outside = p->launcher;
    }
    if (local < list->n) /* other hosts use this address to reach its ranks */
        (void)snprintf(all[local].launcher, sizeof(all[local].launcher), "%s",
                       outside ? outside : "127.0.0.1");
    return 0;
}

int remote_address_reach(const struct remote_hosts *h,
                         uint32_t from,
                         uint32_t n,
                         struct hostlist *ret,
                         struct err *err)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        const struct host *host = &h->list->v[i];
        const char *own = h->v[i].ready.own;
        rc = hostlist_append(ret,
                             i == h->local ? h->v[from].launcher
                             : *own        ? own
                                           : host->name,
                             host->slots, err);
    }
    return rc;
}
