/* SPDX-License-Identifier: Apache-2.0 */
/* The shell around core/webhook_plan.c (when) and core/webhook_text.c (what).
 *
 *   sync: status write --> hold --answer--> confirm --> queue --> HTTP POST --> answer
 *                            '--no answer--> next sync: confirm --^
 *
 * Invariants
 *  1. Nothing waits for the receiver. Its requests run beside those to the API server, on
 *     connections of their own, at most WEBHOOK_AT_ONCE, each at most ATTEMPT_MS.
 *  2. The receiver gets no credentials of the cluster (http.h), and no redirect is followed.
 *  3. The log has scheme, host and port of the URL; never the path, which may have a token.
 *  4. The files are read for each attempt, so a changed Secret applies without a restart.
 *     Each attempt keeps the server that it was sent to.
 * Called by sync.c, and by the loop for the time. */
#include "operator/webhook.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "operator/core/webhook_plan.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"

#define ATTEMPT_MS       10000u
#define MAX_ANSWER_BYTES (1u << 20)
#define MAX_PATH_BYTES   4096u

struct receiver { /* as the files describe it */
    struct kube_config server;
    char *path;
    struct webhook_key key;
};

struct delivery {
    struct webhook *w;
    struct webhook_message *m; /* NULL: this one is free */
    uint64_t call;
    struct receiver to;
};

struct webhook {
    struct controller *op;
    const char *dir;
    struct webhook_queue queue;
    struct delivery at_work[WEBHOOK_AT_ONCE];
    bool is_failing; /* the last attempt was without success; for the log */
};

/* --- the receiver ----------------------------------------------------------------- */

static void receiver_release(struct receiver *r)
{
    kube_config_release(&r->server);
    mem_free_secret(&r->path);
    mem_wipe(&r->key, sizeof(r->key));
    *r = (struct receiver){0};
}

static int read_secret_file(const char *dir,
                            const char *name,
                            size_t max_bytes,
                            char **ret_text,
                            size_t *ret_n,
                            struct err *err)
{
    char path[MAX_PATH_BYTES];

    if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path))
        return err_set(err, -ENAMETOOLONG, "longer than %zu bytes", sizeof(path) - 1);
    return fd_read_file(path, max_bytes, ret_text, ret_n, err);
}

static int receiver_read_server(struct receiver *r, const char *dir, struct err *err)
{
    char *text = NULL;
    size_t n;
    int rc = read_secret_file(dir, "url", WEBHOOK_MAX_URL, &text, &n, err);

    if (rc == 0)
        rc = webhook_read_url(text, &r->server.server, &r->path, err);
    if (rc < 0 && text)
        rc = err_prefix(err, "%s/url", dir);
    mem_free_secret(&text);
    return rc;
}

static int receiver_read_key(struct receiver *r, const char *dir, struct err *err)
{
    char *text = NULL;
    size_t n = 0;
    int rc = read_secret_file(dir, "secret", WEBHOOK_MAX_SECRET, &text, &n, err);

    if (rc == 0)
        rc = webhook_read_key(text, n, &r->key, err);
    if (rc < 0 && text)
        rc = err_prefix(err, "%s/secret", dir);
    if (text)
        mem_wipe(text, n); /* may have a NUL */
    mem_free(text);
    return rc;
}

static int receiver_read(const char *dir, struct receiver *ret, struct err *err)
{
    struct receiver r = {0};
    struct strbuf ca;
    int rc = receiver_read_server(&r, dir, err);

    if (rc == 0)
        rc = receiver_read_key(&r, dir, err);
    strbuf_init(&ca, MAX_PATH_BYTES);
    strbuf_printf(&ca, "%s/ca.crt", dir);
    if (rc == 0 && access(strbuf_str(&ca), F_OK) == 0) {
        r.server.ca_file = strbuf_take(&ca);
        rc = r.server.ca_file ? 0 : err_set(err, -ENOMEM, "out of memory");
    }
    strbuf_release(&ca);
    if (rc < 0) {
        receiver_release(&r);
        return err_prefix(err, "--webhook-dir");
    }
    *ret = r;
    return 0;
}

/* --- sending ---------------------------------------------------------------------- */

static void delivery_end(struct delivery *d, const struct http_reply *r)
{
    struct webhook *w = d->w;
    struct operator_metrics *m = &w->op->metrics;
    unsigned attempt = d->m->n_failures + 1;
    char key[STORE_KEY_SIZE], why[sizeof(r->err.text)];
    enum webhook_end end;
    uint64_t delay_ns;

    (void)snprintf(key, sizeof(key), "%s", d->m->key);
    if (r->status > 0)
        (void)snprintf(why, sizeof(why), "HTTP %d", r->status);
    else
        (void)snprintf(why, sizeof(why), "%s", r->err.text);
    end = webhook_queue_answer(&w->queue, d->m, r->status, r->retry_after_s,
                               clock_now_ns(), &delay_ns);
    if (end != WEBHOOK_DELIVERED)
        m->webhook_failures++;
    if (end != WEBHOOK_RETRIED)
        m->webhook_ends[end]++;
    if (end == WEBHOOK_REFUSED || end == WEBHOOK_EXPIRED)
        log_error("webhook: a message is given up", "job=%s attempt=%u cause=\"%s\"",
                  key, attempt, why);
    else if (end == WEBHOOK_RETRIED && !w->is_failing)
        log_warn("webhook: the receiver fails, sending again",
                 "job=%s attempt=%u retry_ms=%llu cause=\"%s\"", key, attempt,
                 (unsigned long long)(delay_ns / NS_PER_MS), why);
    else if (end == WEBHOOK_DELIVERED && w->is_failing)
        log_info("webhook: the receiver accepts messages again", "job=%s attempt=%u",
                 key, attempt);
    w->is_failing = end != WEBHOOK_DELIVERED && end != WEBHOOK_REFUSED;
    receiver_release(&d->to);
    d->m = NULL;
}

static void on_receiver_answer(void *arg, const struct http_reply *r)
{
    delivery_end(arg, r);
}

/* The content of a 2xx answer does not matter. */
static int on_receiver_chunk(void *arg, const char *p, size_t n)
{
    (void)arg;
    (void)p;
    (void)n;
    return 0;
}

static int delivery_send(struct delivery *d, struct err *err)
{
    struct http_request rq = {.method = "POST",
                              .to = &d->to.server,
                              .content_type = "application/json",
                              .body = d->m->body,
                              .body_n = d->m->body_n,
                              .timeout_ms = ATTEMPT_MS,
                              .max_body = MAX_ANSWER_BYTES,
                              .done = on_receiver_answer,
                              .chunk = on_receiver_chunk,
                              .arg = d};
    struct strbuf headers;
    int rc = receiver_read(d->w->dir, &d->to, err);

    if (rc < 0)
        return rc;
    strbuf_init(&headers, 1024);
    webhook_make_headers(d->m->id, clock_wall_s(), d->m->body, d->m->body_n, &d->to.key,
                         &headers);
    rq.path = d->to.path;
    rq.headers = strbuf_str(&headers);
    rc = strbuf_status(&headers)
             ? err_set(err, -ENOMEM, "out of memory")
             : http_start(kube_http(d->w->op->kube), &rq, &d->call, err);
    strbuf_release(&headers);
    return rc;
}

void webhook_tick(struct webhook *w, uint64_t now_ns)
{
    struct webhook_message *m;

    while (w && (m = webhook_queue_take(&w->queue, now_ns))) {
        struct http_reply r = {.err = ERR_INIT};
        struct delivery *d = w->at_work;

        while (d->m) /* there are as many as can be taken */
            d++;
        d->w = w;
        d->m = m;
        if (delivery_send(d, &r.err) < 0)
            delivery_end(d, &r);
    }
}

uint64_t webhook_next_ns(const struct webhook *w)
{
    return w ? webhook_queue_next_ns(&w->queue) : UINT64_MAX;
}

size_t webhook_depth(const struct webhook *w)
{
    return w ? w->queue.n - w->queue.n_held : 0;
}

/* --- messages --------------------------------------------------------------------- */

static struct webhook_message *
message_new(const struct webhook_change *c, const char *key, struct arena *a)
{
    struct webhook_message *m = mem_zalloc(sizeof(*m));
    struct strbuf body;

    strbuf_init(&body, WEBHOOK_MAX_BODY);
    if (m && webhook_make_body(c, a, &body) == 0) {
        m->body_n = body.n;
        m->body = strbuf_take(&body);
        m->key = mem_strdup(key);
    }
    strbuf_release(&body);
    if (!m || !m->body || !m->key) {
        webhook_message_free(m);
        return NULL;
    }
    (void)snprintf(m->uid, sizeof(m->uid), "%s", c->job->uid);
    m->to = state_of_status(c->status);
    webhook_make_id(c, m->id);
    return m;
}

void webhook_hold(struct webhook *w,
                  const struct job_meta *job,
                  const struct node *status,
                  const struct decision *d,
                  struct arena *a)
{
    const struct webhook_change c = {.job = job,
                                     .status = status,
                                     .reason = d->reason,
                                     .message = d->message,
                                     .wall_s = clock_wall_s()};
    char key[STORE_KEY_SIZE];
    struct webhook_message *m;

    if (!w || !webhook_is_change(&c)
        || store_key(job->kind, job->ns, job->name, key)
               < 0) /* which the store has not */
        return;
    m = message_new(&c, key, a);
    if (m && !webhook_queue_hold(&w->queue, m, clock_now_ns()))
        return;
    w->op->metrics.webhook_ends[WEBHOOK_DROPPED]++;
    log_error("webhook: a message is dropped", "job=%s cause=\"%s\"", key,
              m ? "the queue is full, and the oldest makes room" : "out of memory");
}

void webhook_confirm(struct webhook *w, const char *uid, const struct node *status)
{
    if (w && node_get(status, "conditions"))
        webhook_queue_confirm(&w->queue, uid, state_of_status(status), clock_now_ns());
}

void webhook_forget_all(struct webhook *w)
{
    if (!w)
        return;
    for (size_t i = 0; i < WEBHOOK_AT_ONCE; i++) {
        if (!w->at_work[i].m)
            continue;
        http_cancel(kube_http(w->op->kube), w->at_work[i].call);
        receiver_release(&w->at_work[i].to);
        w->at_work[i].m = NULL;
    }
    if (webhook_depth(w) > 0)
        log_warn("webhook: messages are dropped, another process leads", "objects=%zu",
                 webhook_depth(w));
    w->op->metrics.webhook_ends[WEBHOOK_DROPPED] += webhook_depth(w);
    webhook_queue_release(&w->queue);
}

/* --- lifetime --------------------------------------------------------------------- */

int webhook_new(struct controller *op,
                const char *dir,
                struct webhook **ret,
                struct err *err)
{
    struct receiver r = {0};
    struct webhook *w;
    int rc = receiver_read(dir, &r, err);

    if (rc < 0)
        return rc;
    log_info("webhook: each change of a job's state is sent", "server=%s",
             r.server.server);
    receiver_release(&r);
    w = mem_zalloc(sizeof(*w));
    if (!w)
        return err_set(err, -ENOMEM, "out of memory");
    w->op = op;
    w->dir = dir;
    *ret = w;
    return 0;
}

void webhook_free(struct webhook *w)
{
    if (!w)
        return;
    for (size_t i = 0; i < WEBHOOK_AT_ONCE; i++)
        receiver_release(&w->at_work[i].to);
    webhook_queue_release(&w->queue);
    mem_free(w);
}
