/* SPDX-License-Identifier: Apache-2.0 */
/* What the operator's HTTP listeners share beside libmicrohttpd: the address, and which
 * connection has to go, and when. */
#ifndef OPERATOR_HTTP_CLIENTS_H
#define OPERATOR_HTTP_CLIENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "runtime/base/err.h"

#define CLIENTS_ENDING 64u /* beside max: connections that are being ended */

struct http_client { /* a connection; only `request` is for others */
    struct http_client *prev, *next;
    int fd;
    uint64_t since_ns; /* when it became idle */
    bool is_listed;
    void *request; /* that it has begun to send; NULL: none */
};

struct http_clients {
    struct http_client *first, *last; /* that may be ended, the oldest first */
    size_t n, max;                    /* n: all of them */
    uint64_t idle_ns;
};

/* text: an IPv4 or IPv6 address, the value of the option. -EINVAL. */
int http_address_parse(const char *option,
                       const char *text,
                       uint16_t port,
                       struct sockaddr_storage *ret,
                       struct err *err);

/* s->max is fewer where the process may not open so many descriptors. */
void clients_init(struct http_clients *s, size_t max, uint64_t idle_ns);

/* A new connection, which is idle. Above max the oldest idle one is ended. NULL: out of
 * memory; the connection is ended. */
struct http_client *clients_add(struct http_clients *s, int fd);
/* It is closed. Accepts NULL. */
void clients_remove(struct http_clients *s, struct http_client *c);

/* From now on it may be ended, and is after idle_ns. */
void client_idle(struct http_clients *s, struct http_client *c);
/* It may not be ended. */
void client_busy(struct http_clients *s, struct http_client *c);
/* Shuts the connection down; libmicrohttpd then closes it. */
void client_end(struct http_clients *s, struct http_client *c);

void clients_end_idle(struct http_clients *s, uint64_t now_ns);
uint64_t clients_next_ns(const struct http_clients *s); /* when one is to be ended */

#endif
