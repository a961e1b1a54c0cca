/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses are taken from connections that exist: ssh passes both ends to the agent
 * (SSH_CONNECTION), and the socket of serve has them. Otherwise (HVD_SSH is another
 * program) they are those of the route to the host's name. Nothing is probed. Called by
 * remote.c. */
#include "runtime/launch/remote_places.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "runtime/base/addr.h"
#include "runtime/base/mem.h"
#include "runtime/wire/bytes.h"

#define OTHERS_NAMED 3

int remote_hosts_new(const struct hostlist *hosts,
                     uint32_t np,
                     struct remote_host **ret,
                     struct err *err)
{
    struct remote_host *all = mem_calloc(hosts->n, sizeof(*all));
    uint32_t first = 0;
    if (!all)
        return err_set(err, -ENOMEM, "out of memory for %zu hosts", hosts->n);
    for (size_t i = 0; i < hosts->n; i++) {
        uint32_t left = np - first, slots = hosts->v[i].slots;
        all[i].first_rank = first;
        all[i].n_ranks = slots < left ? slots : left;
        first += all[i].n_ranks;
    }
    *ret = all;
    return 0;
}

void remote_host_output_ended(struct remote_host *h, struct output *o)
{
    for (uint32_t i = 0; i < h->n_ranks; i++)
        for (int k = 0; k < 2; k++)
            output_feed(o, h->first_rank + i, k, NULL, 0);
}

void remote_name_others(const struct hostlist *hosts,
                        const struct remote_host *all,
                        struct failure *f)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};
    uint32_t named = 0, left = 0;
    strbuf_init(&b, 1024);
    for (size_t i = 0; i < hosts->n; i++) {
        const char *name = hosts->v[i].name;
        if (!all[i].has_failed || !strcmp(name, f->host))
            continue;
        if (named < OTHERS_NAMED && strlen(name) < 40 && ++named)
            strbuf_printf(&b, "%s%s", named == 1 ? " (also failed: " : ", ", name);
        else
            left++;
    }
    if (named && left)
        strbuf_printf(&b, " and %u more", left);
    if (named)
        strbuf_putc(&b, ')');
    size_t n = strlen(f->why), room = sizeof(f->why) - 1;
    if (b.n && b.n < room)
        (void)snprintf(f->why + (n < room - b.n ? n : room - b.n), b.n + 1, "%s",
                       strbuf_str(&b));
}

void remote_print_note(const char *program,
                       const char *host,
                       const uint8_t *p,
                       size_t n)
{
    struct bytes_reader b = {.p = p, .left = n};
    AUTOFREE char *text = bytes_text(&b);
    for (char *line = text; line && *line;) {
        char *end = line + strcspn(line, "\n"), *next = *end ? end + 1 : end;
        *end = '\0';
        for (char *q = line; *q; q++)
            if ((unsigned char)*q < ' ' && *q != '\t')
                *q = '?';
        fprintf(stderr, "%s: host %s: %s\n", program, host, line);
        line = next;
    }
}

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

int remote_addresses(const struct hostlist *hosts,
                     uint32_t local,
                     const char *iface,
                     struct remote_host *all,
                     struct err *err)
{
    char fixed[HOST_NAME_MAX_BYTES] = "";
    const char *outside = NULL; /* our address as another host sees it */
    if (iface) {
        int rc = addr_of_iface(iface, fixed, sizeof(fixed), err);
        if (rc < 0)
            return err_prefix(err, "--network-interfaces"), rc;
    }
    for (uint32_t h = 0; h < hosts->n; h++) {
        struct remote_host *p = &all[h];
        if (h == local)
            continue;
        if (!*p->ready.theirs || !*p->ready.own)
            route_find(hosts->v[h].name, p->ready.own, p->ready.theirs);
        (void)snprintf(p->launcher, sizeof(p->launcher), "%s",
                       iface ? fixed : p->ready.theirs);
        if (!*p->launcher)
            return err_set(err, -EHOSTUNREACH,
                           "host %s: the address by which it reaches this host is "
                           "unknown: select an interface with --network-interfaces",
                           hosts->v[h].name);
        if (!outside)
            outside = p->launcher;
    }
    if (local < hosts->n) /* other hosts use this address to reach its ranks */
        (void)snprintf(all[local].launcher, sizeof(all[local].launcher), "%s",
                       outside ? outside : "127.0.0.1");
    for (uint32_t h = 0; h < hosts->n; h++)
        (void)snprintf(all[h].master, sizeof(all[h].master), "%s",
                       local == 0          ? all[h].launcher
                       : *all[0].ready.own ? all[0].ready.own
                                           : hosts->v[0].name);
    return 0;
}
