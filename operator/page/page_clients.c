/* SPDX-License-Identifier: Apache-2.0 */
/* A list of the connections that may be ended, in the order in which they became idle, so
 * the first one is the one to go.
 *
 * Invariants
 *  1. A connection that is being ended is not in the list: of two new ones each ends
 *     another one. Their number then stays below libmicrohttpd's own limit, at which it
 *     would stop listening, and nothing would wake the loop when a place becomes free.
 *  2. OTHER_FILES descriptors are left to the rest of the operator: the API server's
 *     client, agents, the listener of health and metrics.
 * Called by page_http.c. */
#include "operator/page/page_clients.h"

#include <sys/resource.h>
#include <sys/socket.h>

#include "runtime/base/mem.h"

#define MAX_CLIENTS 1000u
#define MIN_CLIENTS 16u
#define OTHER_FILES 256u

void clients_init(struct page_clients *s)
{
    const rlim_t others = OTHER_FILES + CLIENTS_ENDING;
    struct rlimit files;

    *s = (struct page_clients){.max = MAX_CLIENTS};
    if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur >= MAX_CLIENTS + others)
        return;
    s->max = files.rlim_cur > others + MIN_CLIENTS ? (size_t)(files.rlim_cur - others)
                                                   : MIN_CLIENTS;
}

void client_busy(struct page_clients *s, struct page_client *c)
{
    if (!c->is_listed)
        return;
    c->is_listed = false;
    *(c->prev ? &c->prev->next : &s->first) = c->next;
    *(c->next ? &c->next->prev : &s->last) = c->prev;
    c->prev = c->next = NULL;
}

void client_idle(struct page_clients *s, struct page_client *c)
{
    client_busy(s, c);
    c->is_listed = true;
    c->since_ns = clock_now_ns();
    c->prev = s->last;
    *(s->last ? &s->last->next : &s->first) = c;
    s->last = c;
}

void client_end(struct page_clients *s, struct page_client *c)
{
    client_busy(s, c);
    (void)shutdown(c->fd, SHUT_RDWR); /* fails if the peer has closed: it ends anyway */
}

struct page_client *clients_add(struct page_clients *s, int fd)
{
    struct page_client *c = mem_zalloc(sizeof(*c));

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

void clients_remove(struct page_clients *s, struct page_client *c)
{
    if (!c)
        return;
    client_busy(s, c);
    s->n--;
    mem_free(c);
}

void clients_end_idle(struct page_clients *s, uint64_t now_ns)
{
    while (now_ns >= clients_next_ns(s))
        client_end(s, s->first);
}

uint64_t clients_next_ns(const struct page_clients *s)
{
    return s->first ? s->first->since_ns + CLIENT_IDLE_NS : UINT64_MAX;
}
