/* SPDX-License-Identifier: Apache-2.0 */
/* libmicrohttpd in external-epoll mode. A request that cannot be answered at once is
 * suspended, and resumed when its answer is there; a stream is suspended while it has
 * nothing to send.
 *
 *   connected -> reading -> OPEN --answer--> sending -> done -> reading (keep-alive)
 *        '-> ended when idle         '--stream--> sending <-> waiting
 *
 * Invariants
 *  1. handler.open is called once for each request, and handler.closed once after it.
 *  2. Only an open call or a stream that waits keeps its connection without a limit; any
 *     other state ends after CLIENT_IDLE_NS: a client that sends or reads nothing holds no
 *     place.
 *  3. When too many are connected, a new one ends the oldest that holds no open call or
 *     stream (operator/http_clients.c). The listener shares no place with health and metrics
 *     (serve.c).
 *  4. A stream queues at most STREAM_TEXTS texts, which are shared by all streams.
 *  5. What viewers have not read yet has at most HELD_MAX_BYTES; a shared text counts once.
 *  6. A turn of the loop opens calls for TURN_NS; more of them wait for the next turn, so
 *     syncs and the Lease do not wait for many viewers. */
#include "operator/page/page_http.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include <microhttpd.h>

#include "operator/http_clients.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/base/strbuf.h"
#include "runtime/base/utf8.h"

#define CLIENTS_MAX    1000u
#define CLIENT_IDLE_NS (30 * NS_PER_S)
#define TURN_NS        (50 * NS_PER_MS)
#define STREAM_TEXTS   64u
#define REQUEST_BYTES  (size_t)32768 /* with a token of 16 KiB */
#define REFUSAL_BYTES  4096u
#define HELD_MAX_BYTES ((size_t)192 << 20) /* beyond it only refusals are sent */

static const char policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'; "
    "require-trusted-types-for 'script'";

struct page_text {
    unsigned refs, holds; /* holds: of calls that have not sent it yet */
    size_t n;
    char p[];
};

struct page_call_state {
    struct page_call call;               /* the first member */
    struct page_call_state *prev, *next; /* of all open ones */
    struct page_call_state *later;       /* the next one that waits for its turn */
    struct page_http *http;
    struct MHD_Connection *connection;
    struct http_client *client;
    char *uri;
    struct MHD_Response *response; /* set: to be queued */
    struct page_text *body;        /* of it; NULL: none, or a stream */
    int status;
    bool is_begun, is_open, is_handled, is_queued, is_suspended, is_stream, is_ended,
        is_dropped;
    struct page_text *text[STREAM_TEXTS];
    size_t n_texts, sent; /* bytes of text[0] */
};

struct page_http {
    struct page_handler handler;
    struct MHD_Daemon *daemon;
    struct http_clients clients;
    struct page_call_state *calls;                  /* open */
    struct page_call_state *late_first, *late_last; /* open, not handled yet */
    size_t held_bytes;
    uint64_t turn_ns; /* when this turn began */
    bool is_closing;
};

/* --- texts ------------------------------------------------------------------------- */

struct page_text *page_text_new(const char *p, size_t n)
{
    struct page_text *t = mem_alloc(sizeof(*t) + n);

    if (!t)
        return NULL;
    t->refs = 1;
    t->holds = 0;
    t->n = n;
    memcpy(t->p, p, n);
    return t;
}

struct page_text *page_text_ref(struct page_text *t)
{
    t->refs++;
    return t;
}

void page_text_unref(struct page_text *t)
{
    if (t && --t->refs == 0)
        mem_free(t);
}

/* --- calls -------------------------------------------------------------------------- */

static struct page_call_state *state_of(struct page_call *c)
{
    return (struct page_call_state *)(void *)c;
}

static void call_suspend(struct page_call_state *s)
{
    if (s->is_suspended || s->http->is_closing)
        return;
    s->is_suspended = true;
    MHD_suspend_connection(s->connection);
}

static void call_resume(struct page_call_state *s)
{
    if (!s->is_suspended)
        return;
    s->is_suspended = false;
    MHD_resume_connection(s->connection);
}

/* -ENOBUFS: there is too much that viewers have not read. */
static int call_hold(struct page_call_state *s, struct page_text *t)
{
    struct page_http *h = s->http;

    if (t->holds == 0 && t->n > REFUSAL_BYTES && h->held_bytes + t->n > HELD_MAX_BYTES)
        return -ENOBUFS;
    if (t->holds++ == 0)
        h->held_bytes += t->n;
    (void)page_text_ref(t);
    return 0;
}

static void call_let_go(struct page_call_state *s, struct page_text *t)
{
    if (!t)
        return;
    if (--t->holds == 0)
        s->http->held_bytes -= t->n;
    page_text_unref(t);
}

static void call_free(struct page_call_state *s)
{
    if (s->response)
        MHD_destroy_response(s->response);
    call_let_go(s, s->body);
    for (size_t i = 0; i < s->n_texts; i++)
        call_let_go(s, s->text[i]);
    mem_free(s->uri);
    mem_free(s);
}

static enum MHD_Result call_queue(struct page_call_state *s)
{
    enum MHD_Result rc =
        MHD_queue_response(s->connection, (unsigned)s->status, s->response);

    s->is_queued = true;
    if (!s->is_stream)
        client_idle(&s->http->clients, s->client);
    return rc;
}

static void call_respond(struct page_call_state *s, int status, struct MHD_Response *r)
{
    (void)MHD_add_response_header(r, "Content-Security-Policy", policy);
    (void)MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    (void)MHD_add_response_header(r, "Referrer-Policy", "no-referrer");
    (void)MHD_add_response_header(r, "Cross-Origin-Resource-Policy", "same-origin");
    (void)MHD_add_response_header(r, "Cross-Origin-Opener-Policy", "same-origin");
    s->response = r;
    s->status = status;
    call_resume(s);
}

/* Without memory for an answer the connection is ended. */
static void call_drop(struct page_call_state *s)
{
    s->is_dropped = true;
    client_end(&s->http->clients, s->client);
    call_resume(s);
}

void page_call_answer(struct page_call *c,
                      const struct page_answer *a,
                      struct page_text *body)
{
    struct page_call_state *s = state_of(c);
    struct MHD_Response *r;

    if (body && call_hold(s, body) < 0) {
        page_call_refuse(c, 503, "too many answers wait for viewers that read slowly");
        return;
    }
    s->body = body; /* until the response is gone */
    r = MHD_create_response_from_buffer(body ? body->n : 0, body ? body->p : NULL,
                                        MHD_RESPMEM_PERSISTENT);
    if (!r) {
        call_drop(s);
        return;
    }
    (void)MHD_add_response_header(
        r, "Content-Type", a->content_type ? a->content_type : "application/json");
    if (a->etag)
        (void)MHD_add_response_header(r, "ETag", a->etag);
    (void)MHD_add_response_header(r, "Cache-Control",
                                  a->etag ? "no-cache" : "no-store");
    if (a->status == MHD_HTTP_UNAUTHORIZED)
        (void)MHD_add_response_header(r, "WWW-Authenticate",
                                      "Bearer realm=\"hvd-page\"");
    if (a->status == MHD_HTTP_METHOD_NOT_ALLOWED)
        (void)MHD_add_response_header(r, "Allow", "GET");
    if (a->closes)
        (void)MHD_add_response_header(r, "Connection", "close");
    call_respond(s, a->status, r);
}

void page_call_refuse(struct page_call *c, int status, const char *text)
{
    struct page_answer a = {.status = status, .closes = status == 503};
    CLEANUP(strbuf_release) struct strbuf out;
    struct page_text *body;

    strbuf_init(&out, REFUSAL_BYTES);
    strbuf_puts(&out, "{\"error\":\"");
    utf8_put_json(text, &out);
    strbuf_puts(&out, "\"}\n");
    body = strbuf_status(&out) == 0 ? page_text_new(out.p, out.n) : NULL;
    page_call_answer(c, &a, body);
    page_text_unref(body);
}

/* --- streams ------------------------------------------------------------------------ */

/* libmicrohttpd asks for the next bytes. */
static ssize_t stream_read(void *arg, uint64_t pos, char *buf, size_t max)
{
    struct page_call_state *s = arg;
    size_t n;

    (void)pos;
    if (s->n_texts == 0) {
        if (s->is_ended || s->http->is_closing)
            return MHD_CONTENT_READER_END_OF_STREAM;
        client_busy(&s->http->clients, s->client);
        call_suspend(s);
        return 0;
    }
    n = s->text[0]->n - s->sent;
    if (n > max)
        n = max;
    memcpy(buf, s->text[0]->p + s->sent, n);
    s->sent += n;
    if (s->sent == s->text[0]->n) {
        call_let_go(s, s->text[0]);
        s->n_texts--;
        memmove(s->text, s->text + 1, s->n_texts * sizeof(struct page_text *));
        s->sent = 0;
    }
    client_idle(&s->http->clients, s->client); /* it reads */
    return (ssize_t)n;
}

void page_call_stream(struct page_call *c)
{
    struct page_call_state *s = state_of(c);
    struct MHD_Response *r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 32768,
                                                               stream_read, s, NULL);

    s->is_stream = true;
    if (!r) {
        call_drop(s);
        return;
    }
    (void)MHD_add_response_header(r, "Content-Type", "text/event-stream");
    (void)MHD_add_response_header(r, "Cache-Control", "no-store");
    (void)MHD_add_response_header(r, "X-Accel-Buffering", "no"); /* for proxies */
    call_respond(s, MHD_HTTP_OK, r);
}

int page_call_send(struct page_call *c, struct page_text *t)
{
    struct page_call_state *s = state_of(c);

    if (s->n_texts == STREAM_TEXTS || call_hold(s, t) < 0)
        return -ENOBUFS;
    s->text[s->n_texts++] = t;
    if (s->n_texts == 1 && s->is_queued)
        client_idle(&s->http->clients, s->client); /* until the client has read */
    if (s->is_queued)
        call_resume(s);
    return 0;
}

void page_call_end(struct page_call *c)
{
    struct page_call_state *s = state_of(c);

    s->is_ended = true;
    if (s->is_queued)
        call_resume(s);
}

/* --- requests ----------------------------------------------------------------------- */

static struct http_client *client_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return info ? info->socket_context : NULL;
}

/* What libmicrohttpd does not report as completed: a request that it refused itself after
 * on_uri. It was not opened. */
static void client_drop_request(struct http_client *c)
{
    if (c && c->request)
        call_free(TAKE(c->request));
}

static void *on_uri(void *arg, const char *uri, struct MHD_Connection *connection)
{
    struct http_client *client = client_of(connection);
    struct page_call_state *s = client ? mem_zalloc(sizeof(*s)) : NULL;
    char *question;

    if (!s)
        return NULL;
    client_drop_request(client);
    s->http = arg;
    s->connection = connection;
    s->client = client;
    s->uri = mem_strdup(uri);
    if (!s->uri) {
        call_free(s);
        return NULL;
    }
    client->request = s;
    question = strchr(s->uri, '?');
    if (question)
        *question = '\0';
    s->call.path = s->uri;
    s->call.query = question ? question + 1 : "";
    return s;
}

static const char *header_of(const struct page_call_state *s, const char *name)
{
    return MHD_lookup_connection_value(s->connection, MHD_HEADER_KIND, name);
}

static enum MHD_Result call_handle(struct page_call_state *s)
{
    s->is_handled = true;
    s->http->handler.open(s->http->handler.arg, &s->call);
    if (s->response)
        return call_queue(s);
    if (s->is_dropped)
        return MHD_NO;
    call_suspend(s);
    return MHD_YES;
}

/* Those that wait, the first one first: each is handled when it runs again. */
static void http_open_late(struct page_http *h)
{
    while (h->late_first && clock_now_ns() - h->turn_ns < TURN_NS) {
        struct page_call_state *s = h->late_first;

        h->late_first = s->later;
        s->is_handled = true;
        h->handler.open(h->handler.arg, &s->call);
    }
}

static enum MHD_Result call_open(struct page_call_state *s, const char *method)
{
    const char *token = header_of(s, "Authorization");
    struct page_http *h = s->http;

    if (h->is_closing)
        return MHD_NO;
    s->call.method = method;
    s->call.token = token && strncasecmp(token, "Bearer ", 7) == 0 ? token + 7 : NULL;
    s->call.etag = header_of(s, "If-None-Match");
    s->is_open = true;
    s->next = h->calls;
    if (s->next)
        s->next->prev = s;
    h->calls = s;
    client_busy(&h->clients, s->client);
    if (clock_now_ns() - h->turn_ns < TURN_NS)
        return call_handle(s);
    *(h->late_first ? &h->late_last->later : &h->late_first) = s;
    h->late_last = s;
    call_suspend(s);
    return MHD_YES;
}

static enum MHD_Result on_request(void *arg,
                                  struct MHD_Connection *c,
                                  const char *url,
                                  const char *method,
                                  const char *version,
                                  const char *data,
                                  size_t *n_data,
                                  void **state)
{
    struct page_call_state *s = *state;

    (void)arg;
    (void)c;
    (void)url;
    (void)version;
    (void)data;
    if (!s)
        return MHD_NO;
    if (*n_data > 0) { /* a body is read and dropped */
        *n_data = 0;
        return MHD_YES;
    }
    if (!s->is_begun) { /* after an answer at this point the connection would be closed */
        s->is_begun = true;
        return MHD_YES;
    }
    if (!s->is_open)
        return call_open(s, method);
    if (s->response && !s->is_queued)
        return call_queue(s);
    return s->response ? MHD_YES : MHD_NO;
}

/* libmicrohttpd does not wipe the memory of a connection. */
static void call_wipe_token(struct page_call_state *s)
{
    if (s->call.token)
        mem_wipe((void *)(uintptr_t)s->call.token, strlen(s->call.token));
}

static void on_completed(void *arg,
                         struct MHD_Connection *c,
                         void **state,
                         enum MHD_RequestTerminationCode code)
{
    struct page_http *h = arg;
    struct page_call_state *s = *state;

    (void)c;
    (void)code;
    *state = NULL;
    if (!s)
        return;
    if (s->is_open) {
        *(s->prev ? &s->prev->next : &h->calls) = s->next;
        if (s->next)
            s->next->prev = s->prev;
        if (s->is_handled)
            h->handler.closed(h->handler.arg, &s->call);
        call_wipe_token(s);
    }
    s->client->request = NULL;
    client_idle(&h->clients, s->client);
    call_free(s);
}

/* --- the listener ------------------------------------------------------------------- */

static void on_connection(void *arg,
                          struct MHD_Connection *connection,
                          void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct page_http *h = arg;
    static const int send_bytes = 256 << 10; /* that a client may leave unread */
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);

    if (code == MHD_CONNECTION_NOTIFY_STARTED && info) {
        (void)setsockopt(info->connect_fd, SOL_SOCKET, SO_SNDBUF, &send_bytes,
                         sizeof(send_bytes));
        *context = clients_add(&h->clients, info->connect_fd);
    }
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        client_drop_request(*context);
        clients_remove(&h->clients, *context);
    }
}

static struct MHD_Daemon *http_start(struct page_http *h,
                                     unsigned flags,
                                     uint16_t port,
                                     const struct sockaddr_storage *at)
{
    return MHD_start_daemon(
        flags | MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, port, NULL, NULL, on_request,
        h, MHD_OPTION_CONNECTION_LIMIT, (unsigned)h->clients.max + CLIENTS_ENDING,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, REQUEST_BYTES, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, h, MHD_OPTION_NOTIFY_COMPLETED, on_completed, h,
        MHD_OPTION_URI_LOG_CALLBACK, on_uri, h, MHD_OPTION_SOCK_ADDR, at,
        MHD_OPTION_END);
}

static int
http_listen(struct page_http *h, const char *address, uint16_t port, struct err *err)
{
    struct sockaddr_storage at;
    int rc = http_address_parse("page-address", address, port, &at, err);

    if (rc < 0)
        return rc;
    errno = 0;
    h->daemon = http_start(h, at.ss_family == AF_INET6 ? MHD_USE_IPv6 : 0, port, &at);
    if (!h->daemon)
        return err_errno(err, errno ? errno : EADDRINUSE,
                         "--page: cannot listen on %s, port %u", address, port);
    return 0;
}

int page_http_new(const char *address,
                  uint16_t port,
                  const struct page_handler *handler,
                  struct page_http **ret,
                  struct err *err)
{
    struct page_http *h = mem_zalloc(sizeof(*h));
    int rc;

    if (!h)
        return err_set(err, -ENOMEM, "out of memory");
    h->handler = *handler;
    clients_init(&h->clients, CLIENTS_MAX, CLIENT_IDLE_NS);
    rc = http_listen(h, address, port, err);
    if (rc < 0)
        mem_free(h);
    else
        *ret = h;
    return rc;
}

void page_http_free(struct page_http *h)
{
    if (!h)
        return;
    h->is_closing = true;
    for (struct page_call_state *s = h->calls; s; s = s->next)
        call_resume(s); /* libmicrohttpd does not end a suspended connection */
    MHD_stop_daemon(h->daemon);
    mem_free(h);
}

int page_http_fd(const struct page_http *h)
{
    const union MHD_DaemonInfo *d =
        MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD);

    return d ? d->epoll_fd : -1;
}

uint64_t page_http_next_ns(const struct page_http *h, uint64_t now_ns)
{
    uint64_t next = clients_next_ns(&h->clients);
    MHD_UNSIGNED_LONG_LONG ms;

    if (h->late_first)
        return now_ns;
    if (MHD_get_timeout(h->daemon, &ms) == MHD_YES)
        next = earlier_ns(next, now_ns + ms * NS_PER_MS);
    return next;
}

void page_http_run(struct page_http *h, uint64_t now_ns)
{
    h->turn_ns = clock_now_ns();
    clients_end_idle(&h->clients, now_ns);
    http_open_late(h);
    (void)MHD_run(h->daemon);
}

size_t page_http_n_clients(const struct page_http *h)
{
    return h->clients.n;
}
