/* SPDX-License-Identifier: Apache-2.0 */
/* The connections of the page's viewers, for page_http.c: which one has to go, and when. */
#ifndef OPERATOR_PAGE_PAGE_CLIENTS_H
#define OPERATOR_PAGE_PAGE_CLIENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/clock.h"

#define CLIENT_IDLE_NS (30 * NS_PER_S)
#define CLIENTS_ENDING 64u /* beside max: connections that are being ended */

struct page_client { /* a connection; only `request` is for others */
    struct page_client *prev, *next;
    int fd;
    uint64_t since_ns; /* when it became idle */
    bool is_listed;
    void *request; /* that it has begun to send; NULL: none */
};

struct page_clients {
    struct page_client *first, *last; /* that may be ended, the oldest first */
    size_t n, max;                    /* n: all of them */
};

/* max: 1000, or fewer where the process may not open so many descriptors. */
void clients_init(struct page_clients *s);

/* A new connection, which is idle. Above max the oldest idle one is ended. NULL: out of
 * memory; the connection is ended. */
struct page_client *clients_add(struct page_clients *s, int fd);
/* It is closed. Accepts NULL. */
void clients_remove(struct page_clients *s, struct page_client *c);

/* From now on it may be ended, and is after CLIENT_IDLE_NS. */
void client_idle(struct page_clients *s, struct page_client *c);
/* It may not be ended. */
void client_busy(struct page_clients *s, struct page_client *c);
/* Shuts the connection down; libmicrohttpd then closes it. */
void client_end(struct page_clients *s, struct page_client *c);

void clients_end_idle(struct page_clients *s, uint64_t now_ns);
uint64_t clients_next_ns(const struct page_clients *s); /* when one is to be ended */

#endif
