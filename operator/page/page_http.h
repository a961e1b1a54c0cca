/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP of the status page: GET requests that are answered later, and streams. One thread;
 * nothing blocks. libmicrohttpd stays inside page_http.c (and operator/serve.c). */
#ifndef OPERATOR_PAGE_PAGE_HTTP_H
#define OPERATOR_PAGE_PAGE_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"

/* Text that several calls send; counted. */
struct page_text;
struct page_text *page_text_new(const char *p, size_t n); /* NULL: out of memory */
struct page_text *page_text_ref(struct page_text *t);
void page_text_unref(struct page_text *t); /* accepts NULL */

struct page_call {             /* one request; strings are valid until it is closed */
    const char *method, *path; /* as sent, without the query */
    const char *query;         /* as sent, without "?"; "" for none */
    const char *token;         /* of "Authorization: Bearer TOKEN"; NULL: none */
    const char *etag;          /* of "If-None-Match"; NULL: none */
    void *owner;               /* for the handler */
};

struct page_handler {
    /* A new request: must be answered once, now or later. */
    void (*open)(void *arg, struct page_call *c);
    /* The client has gone, or everything was sent. c is not valid any more; it must not be
     * answered. */
    void (*closed)(void *arg, struct page_call *c);
    void *arg;
};

struct page_http;
/* address: IPv4 or IPv6, numeric. -EINVAL, -EADDRINUSE, -ENOMEM with err. */
int page_http_new(const char *address,
                  uint16_t port,
                  const struct page_handler *handler,
                  struct page_http **ret,
                  struct err *err);
/* Closes all calls. Accepts NULL. */
void page_http_free(struct page_http *h);

struct page_answer {
    int status;
    const char *content_type; /* NULL: application/json */
    const char *etag;         /* NULL: the answer is not stored by browsers */
    bool closes;              /* the connection */
};
/* Sends body and ends the call. */
void page_call_answer(struct page_call *c,
                      const struct page_answer *a,
                      struct page_text *body);
/* {"error": "TEXT"}. 503 closes the connection, so that the next request may reach another
 * operator. */
void page_call_refuse(struct page_call *c, int status, const char *text);

/* Begins a text/event-stream. */
void page_call_stream(struct page_call *c);
/* The text is sent when the client reads. -ENOBUFS: the client is too slow; end it. */
int page_call_send(struct page_call *c, struct page_text *t);
/* Ends the stream when all is sent. */
void page_call_end(struct page_call *c);

int page_http_fd(const struct page_http *h); /* to be polled for POLLIN */
uint64_t page_http_next_ns(const struct page_http *h, uint64_t now_ns);
void page_http_run(struct page_http *h, uint64_t now_ns);
size_t page_http_n_clients(const struct page_http *h); /* connections */

#endif
