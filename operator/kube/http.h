/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP to the API server: many requests and a few streams at once, in one thread, over
 * kept-alive connections. A request may go to another server, too. libcurl stays inside
 * http.c and http_tls.c. */
#ifndef OPERATOR_KUBE_HTTP_H
#define OPERATOR_KUBE_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "operator/kube/config.h"
#include "runtime/base/err.h"

struct http_reply {
    int status;       /* HTTP status; 0 when there was no whole answer */
    struct err err;   /* why not */
    const char *body; /* NUL-terminated; valid during the callback. Empty for streams */
    size_t n;
    uint32_t retry_after_s; /* from the header of that name; 0: none */
    bool has_new_creds;     /* after a 401: new ones are present or being fetched */
};
/* Called exactly once per started request, unless it was cancelled. May start and cancel
 * other requests. */
typedef void (*http_done_fn)(void *arg, const struct http_reply *reply);
/* A piece of a 2xx answer's body. A negative result ends the stream: done is called
 * with that code. Must not start or cancel requests. */
typedef int (*http_chunk_fn)(void *arg, const char *p, size_t n);
/* The header of a 2xx answer was received. Must not start or cancel requests. */
typedef void (*http_opened_fn)(void *arg);
/* Returns true if the request may be sent. Called when the connection exists, just before
 * the first byte is sent. False ends the request with -EPERM. Must not start or cancel
 * requests. */
typedef bool (*http_may_send_fn)(void *arg);

struct http_request {
    const char *method, *path; /* path with query, as sent */
    /* Another server, which gets no credentials; only server, proxy and CA of it are used.
     * It must live until the request's end, and the path stays out of errors. NULL: the
     * API server. */
    const struct kube_config *to;
    const char *headers;      /* with to: more lines, each with a newline; or NULL */
    const char *accept;       /* NULL: application/json */
    const char *content_type; /* of body; NULL without body */
    const char *body;         /* copied */
    size_t body_n;
    uint64_t timeout_ms; /* whole request; 0: none (streams) */
    uint64_t idle_ms;    /* streams: silence for so long is an error; 0: none */
    size_t max_body;     /* a longer answer is an error */
    bool is_secret;      /* the answer: wiped after use */
    bool is_fresh; /* use a new connection: an existing one may be dead undetected */
    http_done_fn done;
    http_chunk_fn chunk;       /* NULL: the body is gathered for done */
    http_opened_fn opened;     /* may be NULL */
    http_may_send_fn may_send; /* NULL: it may */
    void *arg;
};

struct http;
/* config must live as long as the handle. */
int http_new(const struct kube_config *config,
             const char *user_agent,
             struct http **ret,
             struct err *err);
void http_free(struct http *h); /* no callbacks; accepts NULL */
/* ret_id may be NULL; ids are never 0 and never used twice. */
int http_start(struct http *h,
               const struct http_request *rq,
               uint64_t *ret_id,
               struct err *err);
void http_cancel(struct http *h,
                 uint64_t id); /* no callback; unknown ids are ignored */

/* True while new credentials are fetched: a request started now would be refused. */
bool http_is_waiting(const struct http *h);
/* Called by http_run each time before anything is sent; may cancel requests. */
void http_set_gate(struct http *h, void (*gate)(void *arg), void *arg);

struct pollfd;
/* Waits at most until deadline_ns for the network or one of fds (revents set), then
 * processes what is ready and calls callbacks. No other function blocks. */
int http_run(struct http *h,
             uint64_t deadline_ns,
             struct pollfd *fds,
             size_t n_fds,
             struct err *err);

#endif
