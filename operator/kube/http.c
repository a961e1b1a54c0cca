/* SPDX-License-Identifier: Apache-2.0 */
/* Requests and streams on one curl multi handle.
 *
 * Each request is a struct http_call with an easy handle from a small pool; the multi
 * handle keeps connections alive. HTTP/1.1 on purpose: a watch has its own connection,
 * so TCP detects a dead one (keep-alive, TCP_USER_TIMEOUT) without harm to others.
 *
 * Invariants
 *  1. done is called exactly once for a call that was not cancelled, from http_run
 *     only.
 *  2. A call is out of the list and its easy handle is back in the pool before done
 *     runs, so done may start the next request on the same connection.
 *  3. Every call has an end: timeout_ms for requests, idle_ms for streams.
 *  4. creds.c provides the credentials of each request, none for another server than the
 *     API server; http_tls.c verifies the server.
 *  5. Memory that libcurl frees is wiped: tokens, keys and Secrets pass through it.
 *  6. Only http_run waits, also for a resolver.
 * Called by kube/client, by webhook.c and, for waiting, by the loop. */
#include "operator/kube/http.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <curl/curl.h>

#include "operator/kube/creds.h"
#include "operator/kube/http_tls.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/base/strbuf.h"
#include "runtime/base/wiped.h"

#define MAX_WAIT_FDS       8
#define MAX_POOL           8
#define MAX_CONNECTIONS    32 /* watches, requests in flight, and the Lease */
#define CONNECT_TIMEOUT_MS 10000L
#define DEAD_PEER_MS       40000u
#define MAX_RETRY_AFTER_S  300

struct http_call {
    struct http_call *next;
    struct http *http;
    const struct kube_config *to; /* another server; NULL: the API server */
    uint64_t id;
    CURL *easy;
    struct curl_slist *headers;
    char *key_pem; /* of the client certificate that it was sent with; or NULL */
    struct strbuf body;
    http_done_fn done;
    http_chunk_fn chunk;
    http_opened_fn opened;
    http_may_send_fn may_send;
    void *arg;
    uint64_t identity; /* of the credentials it was sent with */
    uint64_t idle_ns, received_ns;
    int chunk_rc;    /* what the chunk callback ended the stream with */
    bool is_refused; /* by may_send */
    char why[CURL_ERROR_SIZE];
};

struct http {
    const struct kube_config *config;
    CURLM *multi;
    CURL *pool[MAX_POOL];
    size_t n_pool;
    struct http_call *calls;
    size_t n_active;
    uint64_t last_id;
    struct creds *creds;
    char *base_url;                /* the server as in URLs */
    struct curl_slist *connect_to; /* with tls_server_name: its real address */
    char *user_agent;
    void (*gate)(void *arg);
    void *gate_arg;
};

/* --- set-up ----------------------------------------------------------------------- */

/* With tls-server-name the URL carries the name of the certificate (SNI, Host,
 * verification), and CONNECT_TO has the real address: "::host:port". */
static int make_urls(struct http *h, struct err *err)
{
    const char *server = h->config->server;
    const char *host = strstr(server, "://"), *end;
    struct strbuf url, to;

    h->base_url = mem_strdup(server);
    if (h->config->tls_server_name && host) {
        host += 3;
        end = host + strcspn(host, "/");
        strbuf_init(&url, 2048);
        strbuf_init(&to, 2048);
        strbuf_printf(&to, "::%.*s%s", (int)(end - host), host,
                      memchr(host, ':', (size_t)(end - host)) ? "" : ":443");
        strbuf_printf(&url, "https://%s%s", h->config->tls_server_name, end);
        mem_free(h->base_url);
        h->base_url = strbuf_take(&url);
        h->connect_to = curl_slist_append(NULL, strbuf_str(&to));
        strbuf_release(&url);
        strbuf_release(&to);
        if (!h->connect_to)
            return err_set(err, -ENOMEM, "out of memory");
    }
    return h->base_url ? 0 : err_set(err, -ENOMEM, "out of memory");
}

int http_new(const struct kube_config *config,
             const char *user_agent,
             struct http **ret,
             struct err *err)
{
    struct http *h = mem_zalloc(sizeof(*h));
    int rc;

    if (!h
        || curl_global_init_mem(CURL_GLOBAL_DEFAULT, wiped_alloc, wiped_free,
                                wiped_realloc, wiped_strdup, wiped_calloc)
               != CURLE_OK) {
        mem_free(h);
        return err_set(err, -ENOMEM, "libcurl cannot be initialized");
    }
    h->config = config;
    h->multi = curl_multi_init();
    h->user_agent = mem_strdup(user_agent);
    rc = h->multi && h->user_agent ? make_urls(h, err)
                                   : err_set(err, -ENOMEM, "out of memory");
    if (rc == 0)
        rc = creds_new(config, &h->creds, err);
    if (rc < 0) {
        http_free(h);
        return rc;
    }
    curl_multi_setopt(h->multi, CURLMOPT_MAX_HOST_CONNECTIONS, (long)MAX_CONNECTIONS);
    curl_multi_setopt(h->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    *ret = h;
    return 0;
}

static void put_easy(struct http *h, CURL *easy)
{
    if (!easy)
        return;
    if (h->n_pool == MAX_POOL) {
        curl_easy_cleanup(easy);
        return;
    }
    curl_easy_reset(easy);
    h->pool[h->n_pool++] = easy;
}

static void call_free(struct http_call *c)
{
    if (c->easy)
        put_easy(c->http, c->easy);
    for (struct curl_slist *h = c->headers; h; h = h->next)
        explicit_bzero(h->data, strlen(h->data)); /* Authorization */
    curl_slist_free_all(c->headers);
    mem_free_secret(&c->key_pem);
    strbuf_release(&c->body);
    mem_free(c);
}

void http_free(struct http *h)
{
    if (!h)
        return;
    while (h->calls)
        http_cancel(h, h->calls->id);
    for (size_t i = 0; i < h->n_pool; i++)
        curl_easy_cleanup(h->pool[i]);
    if (h->multi)
        curl_multi_cleanup(h->multi);
    creds_free(h->creds);
    mem_free(h->base_url);
    curl_slist_free_all(h->connect_to);
    mem_free(h->user_agent);
    mem_free(h);
    curl_global_cleanup();
}

bool http_is_waiting(const struct http *h)
{
    return creds_is_waiting(h->creds);
}

void http_set_gate(struct http *h, void (*gate)(void *arg), void *arg)
{
    h->gate = gate;
    h->gate_arg = arg;
}

/* --- callbacks from libcurl ------------------------------------------------------- */

static size_t on_data(char *p, size_t size, size_t n, void *arg)
{
    struct http_call *c = arg;
    long status = 0;

    n *= size;
    c->received_ns = clock_now_ns();
    curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    if (c->chunk && status >= 200 && status < 300) {
        c->chunk_rc = c->chunk(c->arg, p, n);
        return c->chunk_rc < 0 ? 0 : n;
    }
    strbuf_add(&c->body, p, n);
    c->chunk_rc = strbuf_status(&c->body);
    return c->chunk_rc < 0 ? 0 : n;
}

static void on_header_end(struct http_call *c)
{
    long status = 0;

    curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    if (c->opened && status >= 200 && status < 300)
        c->opened(c->arg);
    if (status == 401) /* its certificate may have expired */
        curl_easy_setopt(c->easy, CURLOPT_FORBID_REUSE, 1L);
}

static size_t on_header(char *p, size_t size, size_t n, void *arg)
{
    struct http_call *c = arg;
    size_t len = n * size;

    if (len == 2 && memcmp(p, "\r\n", 2) == 0) /* the header's end */
        on_header_end(c);
    return len;
}

/* The fence was checked when libcurl was called, but connecting takes time and the
 * process may have been stopped meanwhile. */
static int on_ready(void *arg, char *ip, char *local_ip, int port, int local_port)
{
    struct http_call *c = arg;

    (void)ip;
    (void)local_ip;
    (void)port;
    (void)local_port;
    c->is_refused = c->may_send && !c->may_send(c->arg);
    return c->is_refused ? CURL_PREREQFUNC_ABORT : CURL_PREREQFUNC_OK;
}

static int on_socket(void *arg, curl_socket_t fd, curlsocktype purpose)
{
    unsigned ms = DEAD_PEER_MS;

    (void)arg;
    (void)purpose;        /* may fail on an old kernel; keep-alive remains */
    (void)fd_cloexec(fd); /* cannot fail for an open descriptor */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
    return CURL_SOCKOPT_OK;
}

/* --- starting and ending ---------------------------------------------------------- */

static int http_add_header(struct http_call *c, const char *name, const char *value)
{
    struct curl_slist *list;
    struct strbuf b;

    strbuf_init_secret(&b, 128u << 10);
    strbuf_printf(&b, "%s: %s", name, value);
    list = strbuf_status(&b) ? NULL : curl_slist_append(c->headers, strbuf_str(&b));
    strbuf_release(&b);
    if (!list)
        return -ENOMEM;
    c->headers = list;
    return 0;
}

/* "name: value\n" after each other. */
static int add_lines(struct http_call *c, const char *lines)
{
    struct curl_slist *list;

    for (size_t n; *lines; lines += n + 1) {
        AUTOFREE char *line = NULL;

        n = strcspn(lines, "\n");
        line = mem_strndup(lines, n);
        list = line ? curl_slist_append(c->headers, line) : NULL;
        if (!list)
            return -ENOMEM;
        c->headers = list;
    }
    return 0;
}

static int set_headers(struct http_call *c,
                       const struct http_request *rq,
                       const struct identity *who,
                       struct err *err)
{
    const char *more = c->to ? rq->headers : c->http->config->impersonate;
    int rc = http_add_header(c, "Accept", rq->accept ? rq->accept : "application/json");

    if (rc == 0)
        rc = http_add_header(c, "Expect", "");
    if (rc == 0 && rq->content_type)
        rc = http_add_header(c, "Content-Type", rq->content_type);
    if (rc == 0 && who->authorization)
        rc = http_add_header(c, "Authorization", who->authorization);
    if (rc == 0 && more)
        rc = add_lines(c, more);
    return rc < 0 ? err_set(err, rc, "out of memory") : 0;
}

static void set_transport(struct http_call *c, const struct http_request *rq)
{
    CURL *e = c->easy;

    curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_NOPROGRESS, 1L);
    curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_TIMEOUT_MS);
    curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, (long)rq->timeout_ms);
    curl_easy_setopt(e, CURLOPT_FRESH_CONNECT, rq->is_fresh ? 1L : 0L);
    /* else libcurl waits for a hanging resolver beyond the time limit */
    curl_easy_setopt(e, CURLOPT_QUICK_EXIT, 1L);
    curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(e, CURLOPT_TCP_KEEPIDLE, 30L);
    curl_easy_setopt(e, CURLOPT_TCP_KEEPINTVL, 10L);
    curl_easy_setopt(e, CURLOPT_BUFFERSIZE, 16384L);
    curl_easy_setopt(e, CURLOPT_SOCKOPTFUNCTION, on_socket);
    curl_easy_setopt(e, CURLOPT_PREREQFUNCTION, on_ready);
    curl_easy_setopt(e, CURLOPT_PREREQDATA, c);
    curl_easy_setopt(e, CURLOPT_USERAGENT, c->http->user_agent);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, c->why);
    curl_easy_setopt(e, CURLOPT_PRIVATE, c);
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, c);
    curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(e, CURLOPT_HEADERDATA, c);
    curl_easy_setopt(e, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L); /* a proxy's headers */
    if (!rq->chunk) /* a list; events of a watch must not wait in a decoder */
        curl_easy_setopt(e, CURLOPT_ACCEPT_ENCODING, "gzip");
}

static int
set_request(struct http_call *c, const struct http_request *rq, struct err *err)
{
    CURL *e = c->easy;
    struct strbuf url;
    CURLcode rc;

    strbuf_init_secret(&url, 16384);
    strbuf_printf(&url, "%s%s", c->to ? c->to->server : c->http->base_url, rq->path);
    rc = strbuf_status(&url) ? CURLE_OUT_OF_MEMORY
                             : curl_easy_setopt(e, CURLOPT_URL, strbuf_str(&url));
    strbuf_release(&url);
    if (rc == CURLE_OK)
        rc = curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, rq->method);
    if (rc == CURLE_OK && rq->body) {
        curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)rq->body_n);
        rc = curl_easy_setopt(e, CURLOPT_COPYPOSTFIELDS, rq->body);
    }
    if (rc == CURLE_OK && c->http->connect_to && !c->to)
        rc = curl_easy_setopt(e, CURLOPT_CONNECT_TO, c->http->connect_to);
    if (rc != CURLE_OK)
        return err_set(err, -EINVAL, "%s %s: %s", rq->method,
                       c->to ? c->to->server : rq->path, curl_easy_strerror(rc));
    curl_easy_setopt(e, CURLOPT_HTTPHEADER, c->headers);
    return 0;
}

int http_start(struct http *h,
               const struct http_request *rq,
               uint64_t *ret_id,
               struct err *err)
{
    struct http_call *c = mem_zalloc(sizeof(*c));
    struct identity who = {0};
    int rc = 0;

    if (!c)
        return err_set(err, -ENOMEM, "out of memory");
    c->http = h;
    c->to = rq->to;
    c->done = rq->done;
    c->chunk = rq->chunk;
    c->opened = rq->opened;
    c->may_send = rq->may_send;
    c->arg = rq->arg;
    c->idle_ns = rq->idle_ms * NS_PER_MS;
    c->received_ns = clock_now_ns();
    if (rq->is_secret)
        strbuf_init_secret(&c->body, rq->max_body);
    else
        strbuf_init(&c->body, rq->max_body);
    c->easy = h->n_pool ? h->pool[--h->n_pool] : curl_easy_init();
    if (!c->easy)
        rc = err_set(err, -ENOMEM, "out of memory");
    else if (!c->to)
        rc = creds_get(h->creds, c->received_ns, &who, err);
    if (rc == 0) {
        c->identity = who.number;
        rc = set_headers(c, rq, &who, err);
    }
    if (rc == 0 && who.key_pem) {
        who.key_pem = c->key_pem = mem_strdup(who.key_pem);
        rc = c->key_pem ? 0 : err_set(err, -ENOMEM, "out of memory");
    }
    if (rc == 0)
        rc = http_secure(c->easy, c->to ? c->to : h->config, &who, err);
    if (rc == 0) {
        set_transport(c, rq);
        rc = set_request(c, rq, err);
    }
    if (rc == 0 && curl_multi_add_handle(h->multi, c->easy) != CURLM_OK)
        rc = err_set(err, -ENOMEM, "libcurl accepts no more requests");
    if (rc < 0) {
        call_free(c);
        return rc;
    }
    c->id = ++h->last_id;
    c->next = h->calls;
    h->calls = c;
    h->n_active++;
    if (ret_id)
        *ret_id = c->id;
    return 0;
}

static void unlink_call(struct http *h, struct http_call *c)
{
    for (struct http_call **p = &h->calls; *p; p = &(*p)->next)
        if (*p == c) {
            *p = c->next;
            break;
        }
    h->n_active--;
    curl_multi_remove_handle(h->multi, c->easy);
}

void http_cancel(struct http *h, uint64_t id)
{
    struct http_call *c = h->calls;

    while (c && c->id != id)
        c = c->next;
    if (!c)
        return;
    unlink_call(h, c);
    call_free(c);
}

/* Ends c: returns the easy handle to the pool, then calls done. */
static void call_finish(struct http *h, struct http_call *c, struct http_reply *r)
{
    if (r->status == 401 && !c->to)
        r->has_new_creds = creds_refused(h->creds, c->identity, clock_now_ns());
    unlink_call(h, c);
    put_easy(h, c->easy);
    c->easy = NULL;
    r->body = strbuf_str(&c->body);
    r->n = c->body.n;
    c->done(c->arg, r);
    call_free(c);
}

/* Seconds or a date; a date in the past, by our clock, counts as none. */
static uint32_t retry_after_s(CURL *e)
{
    curl_off_t s = 0;

    curl_easy_getinfo(e, CURLINFO_RETRY_AFTER, &s);
    if (s <= 0)
        return 0;
    return s > MAX_RETRY_AFTER_S ? MAX_RETRY_AFTER_S : (uint32_t)s;
}

static void on_curl_done(struct http *h, CURLMsg *m)
{
    struct http_reply r = {0};
    struct http_call *c = NULL;
    long status = 0;
    char *p = NULL;

    curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &p);
    curl_easy_getinfo(m->easy_handle, CURLINFO_RESPONSE_CODE, &status);
    c = (struct http_call *)(void *)p;
    r.retry_after_s = retry_after_s(m->easy_handle);
    if (m->data.result == CURLE_OK)
        r.status = (int)status;
    else if (c->is_refused)
        (void)err_set(&r.err, -EPERM, "not the leader: not sent");
    else if (c->chunk_rc < 0)
        (void)err_set(&r.err, c->chunk_rc, "%s",
                      c->chunk_rc == -E2BIG ? "the answer is too large"
                                            : strerror(-c->chunk_rc));
    else
        (void)err_set(&r.err,
                      m->data.result == CURLE_OPERATION_TIMEDOUT ? -ETIMEDOUT : -EIO,
                      "%s: %s", c->to ? c->to->server : h->config->server,
                      *c->why ? c->why : curl_easy_strerror(m->data.result));
    call_finish(h, c, &r);
}

static struct http_call *find_silent(struct http *h, uint64_t now_ns)
{
    struct http_call *c = h->calls;

    while (c && (c->idle_ns == 0 || now_ns - c->received_ns < c->idle_ns))
        c = c->next;
    return c;
}

static uint64_t idle_deadline(const struct http *h)
{
    uint64_t first = UINT64_MAX;

    for (const struct http_call *c = h->calls; c; c = c->next) {
        if (c->idle_ns && c->received_ns + c->idle_ns < first)
            first = c->received_ns + c->idle_ns;
    }
    return first;
}

static void http_dispatch(struct http *h)
{
    struct http_call *silent;
    CURLMsg *m;
    int left;

    while ((m = curl_multi_info_read(h->multi, &left))) {
        if (m->msg == CURLMSG_DONE)
            on_curl_done(h, m);
    }
    while ((silent = find_silent(h, clock_now_ns()))) {
        struct http_reply r = {0};

        (void)err_set(&r.err, -ETIMEDOUT, "%s: nothing received for %llu s",
                      h->config->server,
                      (unsigned long long)(silent->idle_ns / NS_PER_S));
        call_finish(h, silent, &r);
    }
}

int http_run(struct http *h,
             uint64_t deadline_ns,
             struct pollfd *fds,
             size_t n_fds,
             struct err *err)
{
    struct curl_waitfd w[MAX_WAIT_FDS + CREDS_FDS];
    struct pollfd creds[CREDS_FDS];
    size_t n_creds;
    uint64_t idle_ns = idle_deadline(h);
    int ms, running;
    CURLMcode rc;

    if (n_fds > MAX_WAIT_FDS)
        return err_set(err, -EINVAL, "too many descriptors to wait for");
    for (size_t i = 0; i < n_fds; i++)
        w[i] = (struct curl_waitfd){.fd = fds[i].fd, .events = CURL_WAIT_POLLIN};
    n_creds = creds_fds(h->creds, creds);
    for (size_t i = 0; i < n_creds; i++)
        w[n_fds + i] =
            (struct curl_waitfd){.fd = creds[i].fd, .events = CURL_WAIT_POLLIN};
    if (creds_next_ns(h->creds) < deadline_ns)
        deadline_ns = creds_next_ns(h->creds);
    ms = clock_left_ms(deadline_ns < idle_ns ? deadline_ns : idle_ns);
    /* no curl_multi_perform before the wait: it could run a callback that makes the
     * deadline stale. What was just started makes the poll return at once. */
    rc = curl_multi_poll(h->multi, w, (unsigned)(n_fds + n_creds),
                         ms < 0 ? INT_MAX : ms, NULL);
    creds_run(h->creds, clock_now_ns());
    if (h->gate)
        h->gate(h->gate_arg);
    if (rc == CURLM_OK)
        rc = curl_multi_perform(h->multi, &running);
    if (rc != CURLM_OK)
        return err_set(err, -EIO, "libcurl: %s", curl_multi_strerror(rc));
    for (size_t i = 0; i < n_fds; i++)
        fds[i].revents = w[i].revents & CURL_WAIT_POLLIN ? POLLIN : 0;
    http_dispatch(h);
    return 0;
}
