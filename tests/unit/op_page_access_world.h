/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of viewers, with an API server that this file plays: requests end here, and so
 * do the log and the clock. */
#ifndef TESTS_UNIT_OP_PAGE_ACCESS_WORLD_H
#define TESTS_UNIT_OP_PAGE_ACCESS_WORLD_H

#include "operator/doc/json.h"
#include "operator/page/page_access.h"
#include "runtime/base/log.h"
#include "tests/unit/torture.h"

enum { SENT_MAX = 2048, SEEN_MAX = 1024 };

struct sent {
    enum kube_kind kind;
    char *body;
    kube_done_fn done;
    void *arg;
};

struct kube { /* those without an answer are sent[first..n) */
    struct sent sent[SENT_MAX];
    size_t first, n;
    uint64_t paused_ns;
};

struct viewers {
    struct kube kube;
    struct page_access *a;
    struct {
        void *arg;
        int http;
        char why[300];
    } seen[SEEN_MAX];
    size_t n;
    void (*react)(struct viewers *w, void *arg); /* of each answer */
};

#define KEEP_NS (60 * NS_PER_S)

static uint64_t now_ns;
static char logged[4096];

uint64_t clock_now_ns(void)
{
    return now_ns;
}

void log_event(enum log_level level, const char *msg, const char *fmt, ...)
{
    size_t n = strlen(logged);
    va_list ap;

    (void)level;
    n += (size_t)snprintf(logged + n, sizeof(logged) - n, "%s ", msg);
    va_start(ap, fmt);
    (void)vsnprintf(logged + n, sizeof(logged) - n, fmt, ap);
    va_end(ap);
}

int kube_submit(struct kube *k, const struct kube_request *rq, struct err *err)
{
    char *body = mem_strndup(rq->body, rq->body_n);

    if (!body)
        return err_set(err, -ENOMEM, "out of memory");
    assert_true(k->n < SENT_MAX);
    assert_string_equal(rq->method, "POST");
    assert_true(!rq->ns && !rq->name && !rq->sub && rq->is_urgent
                && rq->timeout_ms > 0);
    k->sent[k->n++] = (struct sent){rq->kind, body, rq->done, rq->arg};
    return 0;
}

uint64_t kube_paused_ns(const struct kube *k)
{
    return k->paused_ns;
}

/* --- helpers ---------------------------------------------------------------------- */

static inline void viewers_init(struct viewers *w)
{
    memset(w, 0, sizeof(*w));
    now_ns = 1000 * NS_PER_S;
    *logged = '\0';
    assert_int_equal(page_access_new(&w->kube, KEEP_NS, &w->a), 0);
}

/* As kube_free does: open requests are dropped first. */
static inline void viewers_release(struct viewers *w)
{
    while (w->kube.first < w->kube.n)
        mem_free(w->kube.sent[w->kube.first++].body);
    page_access_free(w->a);
}

static inline void viewers_seen(void *arg, int http, const char *why)
{
    struct viewers *w = *(struct viewers **)arg;

    assert_true(w->n < SEEN_MAX);
    w->seen[w->n].arg = arg;
    w->seen[w->n].http = http;
    (void)snprintf(w->seen[w->n++].why, sizeof(w->seen[0].why), "%s", why);
    if (w->react)
        w->react(w, arg);
}

static const struct page_right list_team = {"list", "ringmaster.dev", "horovodjobs",
                                            "",     "team",           ""};

/* Each check has an arg of its own; all begin with w. */
struct asker_arg {
    struct viewers *w;
};

static inline void check(struct asker_arg *who, const char *token)
{
    page_access_check(who->w->a, token, &list_team, viewers_seen, who);
}

static inline size_t n_open(const struct viewers *w)
{
    return w->kube.n - w->kube.first;
}

static const char *next_body(const struct viewers *w)
{
    assert_true(n_open(w) > 0);
    return w->kube.sent[w->kube.first].body;
}

static inline void finish(struct viewers *w, const struct kube_reply *reply)
{
    struct sent s = w->kube.sent[w->kube.first];

    assert_true(n_open(w) > 0);
    w->kube.first++;
    mem_free(s.body);
    s.done(s.arg, reply);
}

static inline void answer_http(struct viewers *w, int http, const char *body)
{
    struct http_reply http_reply = {.status = http, .body = body, .n = strlen(body)};
    struct kube_reply reply = {.body = body, .n = strlen(body)};

    answer_read(&http_reply, &reply.answer);
    finish(w, &reply);
}

static inline void answer_none(struct viewers *w, int code, const char *why)
{
    struct http_reply http_reply = {.body = ""};
    struct kube_reply reply = {.body = "", .error = code};

    (void)err_set(&http_reply.err, code, "%s", why);
    answer_read(&http_reply, &reply.answer);
    finish(w, &reply);
}

static inline void
answer_owner(struct viewers *w, const char *name, const char *audience)
{
    char text[400];

    assert_int_equal(w->kube.sent[w->kube.first].kind, KUBE_TOKEN_REVIEW);
    (void)snprintf(
        text, sizeof(text),
        "{\"spec\":{\"token\":\"echoed\"},\"status\":{\"authenticated\":true,"
        "\"audiences\":[\"%s\"],\"user\":{\"username\":\"%s\",\"groups\":"
        "[\"g\"]}}}",
        audience, name);
    answer_http(w, 201, text);
}

static inline void answer_invalid(struct viewers *w)
{
    assert_int_equal(w->kube.sent[w->kube.first].kind, KUBE_TOKEN_REVIEW);
    answer_http(w, 201,
                "{\"status\":{\"user\":{},\"error\":\"invalid bearer token\"}}");
}

static inline void answer_right(struct viewers *w, bool is_allowed)
{
    assert_int_equal(w->kube.sent[w->kube.first].kind, KUBE_ACCESS_REVIEW);
    answer_http(w, 201,
                is_allowed ? "{\"status\":{\"allowed\":true}}"
                           : "{\"status\":{\"allowed\":false,\"reason\":\"\"}}");
}

static inline void expect_seen(
    const struct viewers *w, size_t n, const void *arg, int http, const char *why)
{
    assert_int_equal(w->n, n);
    assert_ptr_equal(w->seen[n - 1].arg, arg);
    assert_int_equal(w->seen[n - 1].http, http);
    if (why)
        assert_string_equal(w->seen[n - 1].why, why);
}

/* --- what is asked and answered --------------------------------------------------- */

#endif
