/* SPDX-License-Identifier: Apache-2.0 */
/* The client.
 *
 *   kube_submit -> waiting (FIFO) --token bucket, MAX_IN_FLIGHT--> http -> done
 *   kube_watch  -> http (a connection of its own) -> lines -> done
 *
 *   kube_submit, urgent -> http -> done      (the Lease)
 *                    '--> urgent, while credentials are being fetched, and after a 401
 *
 * If an urgent request had no answer, the next ones use new connections: when a router
 * has dropped all of them, each try on another old one would cost its time limit. TCP
 * keep-alive has closed the dead ones after FRESH_NS.
 *
 * 429 pauses the whole bucket for as long as the server requests, and slows it down. No
 * watch is opened during the pause (kube_paused_ns). The caller decides about its
 * request. 401 sends the request once more with fresh credentials, because the server
 * did not execute it. No other request is repeated here: if the answer of a write is
 * lost, the caller has to find out whether it was executed.
 *
 * The fence (may_write) is checked before each write is handed over, and again when its
 * first byte would leave, so that a process that was stopped in between does not send
 * it. kube_fence ends the writes in flight. Writes are numbered for the crash points.
 * Requests are owned by the client until their callback has returned. */
#include "operator/kube/client.h"

#include <errno.h>
#include <string.h>

#include "operator/kube/fault.h"
#include "operator/kube/limit.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"

#define MAX_IN_FLIGHT      8
#define REQUEST_TIMEOUT_MS 30000u
/* etcd accepts objects of 1.5 MiB, and one byte can become six in JSON ("\u003c") */
#define MAX_ANSWER_BYTES   (12u << 20)
#define MAX_LINE_BYTES     (12u << 20)
#define MAX_PATH_BYTES     8192u
#define METADATA           "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
#define METADATA_LIST      "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
#define FRESH_NS           (80 * NS_PER_S) /* http.c: 30 s idle, 40 s without an answer */

struct client_request {
    struct client_request *next;
    struct kube *kube;
    const char *method; /* one of the constants below */
    char *path, *body;
    size_t body_n;
    uint64_t timeout_ms, id, started_ns;
    uint64_t deadline_ns;  /* urgent: also limits its waiting time; else 0 */
    uint64_t write_number; /* 0: not a write */
    size_t max_answer;
    bool is_urgent, is_list, is_metadata, is_text, is_secret, is_strategic,
        was_unauthorized;
    kube_done_fn done;
    void *arg;
};

struct client_watch {
    struct client_watch *next;
    struct kube *kube;
    struct stream stream;
    stream_line_fn line;
    void (*opened)(void *arg);
    kube_done_fn done;
    void *arg;
    uint64_t id;
};

struct kube {
    struct http *http;
    struct kube_options options;
    struct limit limit;
    struct client_request *waiting, *last, *in_flight;
    struct client_request *urgent; /* sent before those in waiting; a few at most */
    struct client_watch *watches;
    unsigned n_in_flight;
    uint64_t n_writes;
    uint64_t fresh_ns; /* until then urgent requests use new connections */
};

static void request_free(struct client_request *r)
{
    mem_free(r->path);
    if (r->body)
        explicit_bzero(r->body, r->body_n); /* a Secret may be in it */
    mem_free(r->body);
    mem_free(r);
}

static bool client_may_write(const struct kube *k)
{
    return !k->options.may_write || k->options.may_write(k->options.may_write_arg);
}

/* After a stop or a long wait the process may have lost its right to write. */
static void kube_check_fence(void *arg)
{
    struct kube *k = arg;

    if (k->n_in_flight > 0 && !client_may_write(k))
        kube_fence(k);
}

int kube_new(const struct kube_config *config,
             const struct kube_options *options,
             struct kube **ret,
             struct err *err)
{
    struct kube *k = mem_zalloc(sizeof(*k));
    int rc;

    if (!k)
        return err_set(err, -ENOMEM, "out of memory");
    k->options = *options;
    limit_init(&k->limit, options->qps, options->burst, clock_now_ns());
    rc = http_new(config, "hvd-operator/" HVD_VERSION_STRING, &k->http, err);
    if (rc < 0) {
        mem_free(k);
        return rc;
    }
    http_set_gate(k->http, kube_check_fence, k);
    *ret = k;
    return 0;
}

static void free_requests(struct client_request *r)
{
    while (r) {
        struct client_request *next = r->next;

        request_free(r);
        r = next;
    }
}

void kube_free(struct kube *k)
{
    if (!k)
        return;
    http_free(k->http);
    free_requests(k->waiting);
    free_requests(k->urgent);
    free_requests(k->in_flight);
    while (k->watches) {
        struct client_watch *w = k->watches;

        k->watches = w->next;
        stream_release(&w->stream);
        mem_free(w);
    }
    mem_free(k);
}

struct http *kube_http(struct kube *k)
{
    return k->http;
}

static const char *method_constant(const char *m)
{
    static const char *const known[] = {"GET", "POST", "PUT", "PATCH", "DELETE"};

    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        if (strcmp(known[i], m) == 0)
            return known[i];
    }
    return NULL;
}

static char *make_path(enum kube_kind kind,
                       const char *ns,
                       const char *name,
                       const char *sub,
                       const char *query)
{
    struct strbuf b;
    char *s;

    strbuf_init(&b, MAX_PATH_BYTES);
    kube_path(&b, kind, ns, name, sub);
    if (query)
        strbuf_puts(&b, query);
    s = strbuf_take(&b);
    strbuf_release(&b);
    return s;
}

static void kube_send(struct kube *k, struct client_request *r);

static void kube_put_urgent(struct kube *k, struct client_request *r)
{
    struct client_request **p = &k->urgent;

    while (*p)
        p = &(*p)->next;
    r->next = NULL;
    *p = r;
}

int kube_submit(struct kube *k, const struct kube_request *rq, struct err *err)
{
    struct client_request *r = mem_zalloc(sizeof(*r));

    if (!r)
        return err_set(err, -ENOMEM, "out of memory");
    r->kube = k;
    r->method = method_constant(rq->method);
    r->path = make_path(rq->kind, rq->ns, rq->name, rq->sub, rq->query);
    r->body = rq->body ? mem_strndup(rq->body, rq->body_n) : NULL;
    r->body_n = rq->body_n;
    r->timeout_ms = rq->timeout_ms ? rq->timeout_ms : REQUEST_TIMEOUT_MS;
    r->is_urgent = rq->is_urgent;
    r->is_secret = rq->kind == KUBE_SECRET || rq->kind == KUBE_TOKEN_REVIEW;
    r->is_metadata = rq->is_metadata;
    r->is_text = rq->is_text;
    r->max_answer = rq->max_answer ? rq->max_answer : MAX_ANSWER_BYTES;
    r->is_strategic = rq->kind == KUBE_POD;
    r->is_list = !rq->name && strcmp(rq->method, "GET") == 0;
    r->done = rq->done;
    r->arg = rq->arg;
    if (!r->method || !r->path || (rq->body && !r->body)) {
        request_free(r);
        return err_set(err, -ENOMEM, "request: out of memory or name too long");
    }
    if (r->is_urgent) {
        r->deadline_ns = clock_now_ns() + r->timeout_ms * NS_PER_MS;
        if (http_is_waiting(k->http))
            kube_put_urgent(k, r);
        else
            kube_send(k, r);
        return 0;
    }
    if (k->last)
        k->last->next = r;
    else
        k->waiting = r;
    k->last = r;
    return 0;
}

static void unlink_in_flight(struct kube *k, struct client_request *r)
{
    struct client_request **p = &k->in_flight;

    while (*p != r)
        p = &(*p)->next;
    *p = r->next;
    k->n_in_flight -= !r->is_urgent;
}

static void kube_note_throttling(struct kube *k, const struct kube_answer *a)
{
    if (a->cls == ANSWER_THROTTLED)
        limit_throttled(&k->limit, clock_now_ns(), a->retry_after_s);
}

static void request_finish(struct client_request *r, const struct http_reply *http)
{
    struct kube *k = r->kube;
    struct kube_reply reply = {
        .body = http->body, .n = http->n, .error = http->status ? 0 : http->err.code};

    answer_read(http, &reply.answer);
    kube_note_throttling(k, &reply.answer);
    r->done(r->arg, &reply);
    request_free(r);
}

/* For a request that was not sent, or whose answer is not awaited any longer. */
static void request_refuse(struct client_request *r, int code, const char *why)
{
    struct http_reply none = {.body = ""};

    (void)err_set(&none.err, code, "%s", why);
    request_finish(r, &none);
}

static int request_start(struct client_request *r, struct err *err);

static void on_done(void *arg, const struct http_reply *http)
{
    struct client_request *r = arg;
    struct kube *k = r->kube;

    if (r->write_number)
        fault_after_write(r->write_number);
    if (k->options.seen)
        k->options.seen(k->options.seen_arg, r->method, http->status,
                        clock_now_ns() - r->started_ns);
    unlink_in_flight(k, r);
    if (r->is_urgent && http->status == 0)
        k->fresh_ns = clock_now_ns() + FRESH_NS;
    if (http->has_new_creds && !r->was_unauthorized) { /* a 401 was not executed */
        r->was_unauthorized = true;
        if (r->is_urgent) {
            kube_put_urgent(k, r);
            return;
        }
        r->next = k->waiting;
        k->waiting = r;
        if (!k->last)
            k->last = r;
        return;
    }
    request_finish(r, http);
}

static bool is_write(const struct client_request *r)
{
    return strcmp(r->method, "GET") != 0;
}

static bool may_send(void *arg)
{
    const struct client_request *r = arg;

    fault_at_send(r->write_number);
    return client_may_write(r->kube);
}

static int request_start(struct client_request *r, struct err *err)
{
    struct http_request rq = {.method = r->method,
                              .path = r->path,
                              .accept = r->is_metadata ? METADATA_LIST
                                        : r->is_text   ? "*/*"
                                                       : NULL,
                              .body = r->body,
                              .body_n = r->body_n,
                              .timeout_ms = r->timeout_ms,
                              .max_body = r->max_answer,
                              .is_secret = r->is_secret,
                              .is_fresh =
                                  r->is_urgent && clock_now_ns() < r->kube->fresh_ns,
                              .done = on_done,
                              .arg = r};

    if (r->write_number)
        rq.may_send = may_send;
    if (r->body && strcmp(r->method, "PATCH") == 0)
        rq.content_type = r->is_strategic ? "application/strategic-merge-patch+json"
                                          : "application/merge-patch+json";
    else if (r->body)
        rq.content_type = "application/json";
    r->started_ns = clock_now_ns();
    if (r->deadline_ns) /* for libcurl 0 ms mean no limit */
        rq.timeout_ms = r->deadline_ns > r->started_ns + NS_PER_MS
                            ? (r->deadline_ns - r->started_ns) / NS_PER_MS
                            : 1;
    return http_start(r->kube->http, &rq, &r->id, err);
}

static void kube_send(struct kube *k, struct client_request *r)
{
    struct err err = ERR_INIT;

    if (is_write(r) && !r->is_urgent) {
        if (!client_may_write(k)) {
            request_refuse(r, -EPERM, "not the leader: not sent");
            return;
        }
        r->write_number = ++k->n_writes;
        fault_before_write(r->write_number);
    }
    r->next = k->in_flight;
    k->in_flight = r;
    k->n_in_flight += !r->is_urgent;
    if (request_start(r, &err) < 0) {
        unlink_in_flight(k, r);
        request_refuse(r, err.code, err.text);
    }
}

static bool is_fenced(const struct client_request *r)
{
    return !r->is_urgent && !r->is_list;
}

/* Moves the fenced requests from one list to another. */
static void requests_move_fenced(struct client_request **from,
                                 struct client_request **to)
{
    while (*from) {
        struct client_request *r = *from;

        if (!is_fenced(r)) {
            from = &r->next;
            continue;
        }
        *from = r->next;
        r->next = *to;
        *to = r;
    }
}

void kube_fence(struct kube *k)
{
    struct client_request *queued = NULL, *in_flight = NULL;

    requests_move_fenced(&k->waiting, &queued);
    for (k->last = k->waiting; k->last && k->last->next;)
        k->last = k->last->next;
    requests_move_fenced(&k->in_flight, &in_flight);
    for (struct client_request *r = in_flight; r; r = r->next) {
        http_cancel(k->http, r->id);
        k->n_in_flight--;
    }
    /* last, because the callbacks may submit requests */
    while (queued || in_flight) {
        struct client_request **p = queued ? &queued : &in_flight, *r = *p;

        *p = r->next;
        request_refuse(r, -EPERM,
                       p == &queued ? "not the leader: not sent"
                                    : "not the leader: not waiting for the answer");
    }
}

/* Bypasses the bucket, whose pauses are long. A request that waited too long for
 * credentials fails with that cause. */
static void tick_urgent(struct kube *k, uint64_t now_ns)
{
    while (k->urgent
           && (now_ns >= k->urgent->deadline_ns || !http_is_waiting(k->http))) {
        struct client_request *r = k->urgent;

        k->urgent = r->next;
        if (now_ns >= r->deadline_ns)
            request_refuse(r, -ETIMEDOUT, "timed out before there were credentials");
        else
            kube_send(k, r);
    }
}

void kube_tick(struct kube *k, uint64_t now_ns)
{
    tick_urgent(k, now_ns);
    while (k->waiting && !http_is_waiting(k->http) && k->n_in_flight < MAX_IN_FLIGHT
           && limit_take(&k->limit, now_ns)) {
        struct client_request *r = k->waiting;

        k->waiting = r->next;
        if (!k->waiting)
            k->last = NULL;
        kube_send(k, r);
    }
}

uint64_t kube_next_ns(const struct kube *k)
{
    if (k->urgent)
        return http_is_waiting(k->http) ? k->urgent->deadline_ns : 0;
    if (!k->waiting || k->n_in_flight >= MAX_IN_FLIGHT || http_is_waiting(k->http))
        return UINT64_MAX;
    return limit_ready_ns(&k->limit);
}

/* --- watches ---------------------------------------------------------------------- */

static int client_on_line(void *arg, const char *line, size_t n)
{
    struct client_watch *w = arg;

    fault_before_event(line, n);
    return w->line(w->arg, line, n);
}

static int on_chunk(void *arg, const char *p, size_t n)
{
    struct client_watch *w = arg;

    return stream_feed(&w->stream, p, n, client_on_line, w);
}

static void client_on_opened(void *arg)
{
    const struct client_watch *w = arg;

    if (w->opened)
        w->opened(w->arg);
}

uint64_t kube_paused_ns(const struct kube *k)
{
    return k->limit.paused_ns;
}

static void on_watch_done(void *arg, const struct http_reply *http)
{
    struct client_watch *w = arg, **p = &w->kube->watches;
    struct kube_reply reply = {
        .body = http->body, .n = http->n, .error = http->status ? 0 : http->err.code};

    answer_read(http, &reply.answer);
    kube_note_throttling(w->kube, &reply.answer);
    if (w->kube->options.seen)
        w->kube->options.seen(w->kube->options.seen_arg, "WATCH", http->status, 0);
    while (*p != w)
        p = &(*p)->next;
    *p = w->next;
    w->done(w->arg, &reply);
    stream_release(&w->stream);
    mem_free(w);
}

int kube_watch(struct kube *k, const struct kube_watch *spec, struct err *err)
{
    AUTOFREE char *path = make_path(spec->kind, spec->ns, NULL, NULL, spec->query);
    struct client_watch *w = mem_zalloc(sizeof(*w));
    struct http_request rq = {.method = "GET",
                              .path = path,
                              .accept = spec->is_metadata ? METADATA : NULL,
                              .idle_ms = spec->idle_ms,
                              .max_body = 1u << 20,
                              .done = on_watch_done,
                              .chunk = on_chunk,
                              .opened = client_on_opened,
                              .arg = w};
    int rc = w && path ? 0 : err_set(err, -ENOMEM, "out of memory");

    if (rc == 0) {
        w->kube = k;
        w->line = spec->line;
        w->opened = spec->opened;
        w->done = spec->done;
        w->arg = spec->arg;
        stream_init(&w->stream, MAX_LINE_BYTES);
        rc = http_start(k->http, &rq, &w->id, err);
    }
    if (rc < 0) {
        mem_free(w);
        return rc;
    }
    w->next = k->watches;
    k->watches = w;
    return 0;
}

void kube_watch_cancel(struct kube *k, const void *arg)
{
    for (struct client_watch **p = &k->watches; *p; p = &(*p)->next) {
        struct client_watch *w = *p;

        if (w->arg != arg)
            continue;
        http_cancel(k->http, w->id);
        *p = w->next;
        stream_release(&w->stream);
        mem_free(w);
        return;
    }
}
