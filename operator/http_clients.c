/* SPDX-License-Identifier: Apache-2.0 */
/* A list of a listener's connections that may be ended, in the order in which they became idle, so
 * the first one is the one to go.
 *
 * Invariants
 *  1. A connection that is being ended is not in the list: of two new ones each ends
 *     another one. Their number then stays below libmicrohttpd's own limit, at which it
 *     would stop listening, and nothing would wake the loop when a place becomes free.
 *  2. OTHER_FILES descriptors are left to the rest of the operator: the API server's
 *     client, agents, the listeners of health and metrics.
 * Called by serve.c (nothing is ever busy there) and page/page_http.c. */
#include "operator/http_clients.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#include "runtime/base/clock.h"
#include "runtime/base/mem.h"

#define MIN_CLIENTS 16u
#define OTHER_FILES 256u

int http_address_parse(const char *option,
                       const char *text,
                       uint16_t port,
                       struct sockaddr_storage *ret,
                       struct err *err)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};

    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
        memcpy(ret, &v4, sizeof(v4));
    else if (inet_pton(AF_INET6, text, &v6.sin6_addr) == 1)
        memcpy(ret, &v6, sizeof(v6));
    else
        return err_set(err, -EINVAL, "--%s: \"%s\" is not an IP address", option, text);
    return 0;
}

void clients_init(struct http_clients *s, size_t max, uint64_t idle_ns)
{
    const rlim_t others = OTHER_FILES + CLIENTS_ENDING;
    struct rlimit files;

    *s = (struct http_clients){.max = max, .idle_ns = idle_ns};
    if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur >= max + others)
        return;
    s->max = files.rlim_cur > others + MIN_CLIENTS ? (size_t)(files.rlim_cur - others)
                                                   : MIN_CLIENTS;
}

void client_busy(struct http_clients *s, struct http_client *c)
{
    if (!c->is_listed)
        return;
    c->is_listed = false;
    *(c->prev ? &c->prev->next : &s->first) = c->next;
    *(c->next ? &c->next->prev : &s->last) = c->prev;
    c->prev = c->next = NULL;
}

void client_idle(struct http_clients *s, struct http_client *c)
{
    client_busy(s, c);
    c->is_listed = true;
    c->since_ns = clock_now_ns();
    c->prev = s->last;
    *(s->last ? &s->last->next : &s->first) = c;
    s->last = c;
}

void client_end(struct http_clients *s, struct http_client *c)
{
    client_busy(s, c);
    (void)shutdown(c->fd, SHUT_RDWR); /* fails if the peer has closed: it ends anyway */
}

struct http_client *clients_add(struct http_clients *s, int fd)
{
    struct http_client *c = mem_zalloc(sizeof(*c));

    if (!c) {
        (void)shutdown(fd, SHUT_RDWR); /* as above */
        return NULL;
    }
    c->fd = fd;
    client_idle(s, c);
    s->n++;
    if (s->n > s->max)
        client_end(s, s->first);
    return c;
}

void clients_remove(struct http_clients *s, struct http_client *c)
{
    if (!c)
        return;
    client_busy(s, c);
    s->n--;
    mem_free(c);
}

void clients_end_idle(struct http_clients *s, uint64_t now_ns)
{
    while (now_ns >= clients_next_ns(s))
        client_end(s, s->first);
}

uint64_t clients_next_ns(const struct http_clients *s)
{
    return s->first ? s->first->since_ns + s->idle_ns : UINT64_MAX;
}
