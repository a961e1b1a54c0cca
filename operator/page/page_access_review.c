/* SPDX-License-Identifier: Apache-2.0 */
/* Sends the reviews that wait (page_access.c), and takes their answers. */
#include <errno.h>
#include <string.h>

#include "operator/doc/json.h"
#include "operator/page/page_access_state.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"

#define UNKNOWN_TURN  4u
#define ANSWER_MAX    (1u << 20)
#define REVIEW_MS     10000u
#define WARN_EVERY_NS (60 * NS_PER_S)

/* http: the answer to all checks of r; 0: their token is known now. */
static void review_end(struct access_review *r, int http, const char *why)
{
    struct page_access *a = r->access;
    struct access_batch batch = {.outer = a->batch};

    batch.checks = TAKE(r->checks);
    a->batch = &batch;
    while (batch.checks) {
        struct access_check *c = batch.checks;

        batch.checks = c->next;
        if (http)
            access_check_answer(a, c, http, why);
        else
            access_check_step(a, c, NULL);
    }
    a->batch = batch.outer;
    access_review_free(r);
}

static void access_on_answer(void *arg, const struct kube_reply *reply);

static int review_send(struct access_review *r)
{
    struct page_access *a = r->access;
    CLEANUP(strbuf_release) struct strbuf body;
    struct kube_request rq = {.method = "POST",
                              .kind = r->kind,
                              .timeout_ms = REVIEW_MS,
                              .is_urgent = true,
                              .done = access_on_answer,
                              .arg = r};
    struct err err = ERR_INIT;
    int rc;

    strbuf_init_secret(&body, ACCESS_BODY_MAX);
    if (r->kind == KUBE_TOKEN_REVIEW)
        page_review_write_token(r->secret, r->is_ordinary, &body);
    else
        strbuf_puts(&body, r->secret);
    rq.body = strbuf_str(&body);
    rq.body_n = body.n;
    rc = strbuf_status(&body);
    if (rc == 0)
        rc = kube_submit(a->kube, &rq, &err);
    a->n_sent += rc == 0;
    return rc;
}

static void review_unlink(struct access_review *r)
{
    struct access_review **p = &r->access->in_flight;

    while (*p != r)
        p = &(*p)->next;
    *p = r->next;
    r->access->n_in_flight--;
}

/* Each UNKNOWN_TURN-th is of a token that is not known: viewers who are known cannot lock
 * others out. */
static struct access_review **access_choose(struct page_access *a)
{
    struct access_review **p = &a->waiting;

    if (a->n_sent % UNKNOWN_TURN == 0) {
        while (*p && (*p)->is_known)
            p = &(*p)->next;
    }
    return *p ? p : &a->waiting;
}

uint64_t page_access_next_ns(const struct page_access *a)
{
    uint64_t ready_ns, paused_ns;

    if (!a->waiting || a->n_in_flight >= ACCESS_AT_ONCE)
        return UINT64_MAX;
    ready_ns = limit_ready_ns(&a->limit);
    paused_ns = kube_paused_ns(a->kube);
    return ready_ns > paused_ns ? ready_ns : paused_ns;
}

void page_access_tick(struct page_access *a, uint64_t now_ns)
{
    while (page_access_next_ns(a) <= now_ns && limit_take(&a->limit, now_ns)) {
        struct access_review **p = access_choose(a), *r = *p;

        if (!r)
            return;
        *p = r->next;
        r->next = a->in_flight; /* now: it may be answered before it is sent */
        a->in_flight = r;
        a->n_in_flight++;
        if (review_send(r) < 0) {
            review_unlink(r);
            review_end(r, 503, "out of memory");
        }
    }
}

/* Why there is no review: for the viewer, and in the log for the administrator. */
static const char *review_failure(const struct access_review *r,
                                  const struct kube_reply *reply)
{
    uint64_t now_ns = clock_now_ns();
    bool is_token = r->kind == KUBE_TOKEN_REVIEW;
    struct page_access *a = r->access;
    const char *why = "the API server did not check the viewer: try again later";

    if (reply->answer.http == 403)
        why = is_token
                  ? "the operator's ClusterRole lacks create on tokenreviews of "
                    "authentication.k8s.io"
                  : "the operator's ClusterRole lacks create on subjectaccessreviews "
                    "of authorization.k8s.io";
    if (!a->warned_ns || now_ns - a->warned_ns >= WARN_EVERY_NS) {
        a->warned_ns = now_ns;
        log_warn("viewers of the page cannot be checked, answering 503",
                 "kind=%s cause=\"HTTP %d: %s\"", kube_kind_name(r->kind),
                 reply->answer.http,
                 reply->answer.http == 0 ? reply->answer.message : why);
    }
    return why;
}

/* As page_review_read_token; the owner of a valid token is in the cache then. */
static int review_accept(const struct access_review *r, const struct node *answer)
{
    CLEANUP(strbuf_release) struct strbuf spec;
    struct page_owner owner;
    int rc;

    strbuf_init(&spec, PAGE_OWNER_MAX_BYTES);
    rc = page_review_read_token(answer, r->is_ordinary, &owner, &spec);
    if (rc == 1) {
        rc = page_cache_accept(r->access->cache, &r->hash, &owner, clock_now_ns());
        rc = rc < 0 ? rc : 1;
    }
    return rc;
}

static void access_take(struct access_review *r, const struct node *answer)
{
    struct page_access *a = r->access;
    bool is_allowed;
    int rc;

    if (r->kind == KUBE_ACCESS_REVIEW) {
        is_allowed = page_review_is_allowed(answer);
        page_cache_put_right(a->cache, r->owner, &r->hash, is_allowed, clock_now_ns());
        review_end(r, is_allowed ? 200 : 403, is_allowed ? "" : r->denial);
        return;
    }
    rc = review_accept(r, answer);
    if (rc == 0 && !r->is_second) {
        r->is_second = true;
        r->is_ordinary = !r->is_ordinary;
        access_review_wait(r);
        return;
    }
    if (rc == 0) {
        page_cache_refuse(a->cache, &r->hash, clock_now_ns());
        review_end(r, 401, access_not_valid);
    } else if (rc < 0) {
        review_end(r, 503,
                   rc == -E2BIG ? "the user's name and groups are too long to be kept"
                                : "out of memory");
    } else {
        review_end(r, 0, "");
    }
}

static void access_on_answer(void *arg, const struct kube_reply *reply)
{
    struct access_review *r = arg;
    struct page_access *a = r->access;
    struct node *answer = NULL;
    struct arena arena;

    review_unlink(r);
    arena_init(&arena, ANSWER_MAX);
    if (reply->answer.cls != ANSWER_OK)
        review_end(r, 503, review_failure(r, reply));
    else if (json_read(&arena, reply->body, reply->n, &answer, NULL) < 0)
        review_end(r, 503, "the API server's answer to a review cannot be read");
    else
        access_take(r, answer);
    arena_wipe(&arena); /* a TokenReview repeats the token */
    arena_release(&arena);
    page_access_tick(a, clock_now_ns());
}
