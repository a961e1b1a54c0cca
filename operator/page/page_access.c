/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of viewers' rights.
 *
 *   check --> cache: who owns the token? --unknown--> TokenReview --+--> not valid: 401
 *               |known                                               |
 *               v                                                    v
 *             cache: may the owner? ---unknown--> SubjectAccessReview --> 200, 403
 *               |known
 *               '--> 200, 403
 *
 * Reviews have a rate of their own (REVIEW_QPS), and at most MAX_IN_FLIGHT are sent at
 * once. They do not use the queue of the kube client: 200 viewers need 20 reviews a second,
 * nearly half of the operator's default rate, and neither they nor syncs may wait for each
 * other. A pause that the API server requests holds for them, too. Other checks wait here,
 * mostly those of owners who are known first: a viewer whose token was just accepted is
 * served before many more tokens are reviewed.
 *
 * The budgets of core/page_cache.h bound how many there are: all unknown tokens together
 * have one, each known owner has another. A flood of tokens that are not valid therefore
 * does not delay viewers who are known; who signs in during the flood may get 429. The
 * burst of unknown tokens is for an operator that was started again, to which all viewers
 * come back at once.
 *
 * Which TokenReview is sent first: Kubernetes 1.34 answers "authenticated" for a token made
 * with --audience hvd-page only if spec.audiences has hvd-page, and for an ordinary token
 * only without it ("token audiences [...] is invalid for the target audiences"); a token
 * for a third party (--audience vault) fails both ways. spec.audiences may name both
 * audiences, but the name of the API server's own differs between clusters. So the first
 * review is for hvd-page, and if it fails the second is for an ordinary token. The claim
 * "aud" in the token would say which, but it saves a request only in the first minute: an
 * owner's next review begins with what succeeded before.
 *
 * Invariants
 *  1. A token exists in its TokenReview: until its last answer, then it is wiped. The
 *     answer repeats the token; the client and this file wipe it, too.
 *  2. A check waits in one review, or in a batch that is being answered.
 *  3. Reviews are unlinked before any callback runs, so that callbacks may check and
 *     cancel.
 * Called by the page's HTTP side. */
#include "operator/page/page_access.h"

#include <errno.h>
#include <string.h>

#include "operator/doc/json.h"
#include "operator/kube/limit.h"
#include "operator/page/core/page_cache.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"

#define MAX_IN_FLIGHT  4u
#define REVIEW_QPS     100u
#define REVIEW_BURST   100u
#define UNKNOWN_TURN   4u
#define MAX_UNKNOWN    512u  /* checks that wait: above it no new token is accepted, */
#define MAX_WAITING    1024u /* and above this no check at all */
#define BODY_MAX_BYTES (128u << 10)
#define ANSWER_MAX     (1u << 20)
#define REVIEW_MS      10000u
#define WARN_EVERY_NS  (60 * NS_PER_S)

struct access_check {
    struct access_check *next;
    struct page_hash token;
    struct page_right right; /* its strings are in text */
    bool has_waited;
    page_access_fn fn;
    void *arg;
    char text[];
};

struct access_review {
    struct access_review *next;
    struct page_access *access;
    enum kube_kind kind;
    struct page_hash hash; /* of the token, or of the right */
    uint64_t owner;        /* of the right; for a token 0 */
    char *secret;          /* the token, or the body that asks for the right */
    char *denial;          /* of a right: the answer for 403 */
    bool is_known;         /* its owner is, or was a while ago */
    bool is_ordinary;      /* the token is now reviewed as one of the cluster */
    bool is_second;
    struct access_check *checks;
};

/* Checks whose review has ended; fn of one may cancel the others. */
struct access_batch {
    struct access_batch *outer;
    struct access_check *checks;
};

struct page_access {
    struct kube *kube;
    struct page_cache *cache;
    struct access_review *waiting, *in_flight;
    struct access_batch *batch;
    size_t n_in_flight, n_checks;
    struct limit limit;
    uint64_t n_sent, n_kept;
    uint64_t warned_ns; /* 0: never */
};

static const char too_many[] = "too many checks wait: try again in a few seconds";
static const char not_valid[] = "the token is not valid, or has expired";

/* --- life ------------------------------------------------------------------------- */

int page_access_new(struct kube *k, uint64_t keep_ns, struct page_access **ret)
{
    uint8_t key[SHA256_BYTES];
    struct page_access *a;
    int rc = random_bytes(key, sizeof(key));

    if (rc < 0)
        return rc;
    a = mem_zalloc(sizeof(*a));
    if (a)
        a->cache = page_cache_new(key, keep_ns);
    mem_wipe(key, sizeof(key));
    if (!a || !a->cache) {
        mem_free(a);
        return -ENOMEM;
    }
    a->kube = k;
    limit_init(&a->limit, REVIEW_QPS, REVIEW_BURST, clock_now_ns());
    *ret = a;
    return 0;
}

static void checks_free(struct access_check *c)
{
    while (c) {
        struct access_check *next = c->next;

        mem_free(c);
        c = next;
    }
}

static void review_free(struct access_review *r)
{
    if (!r)
        return;
    checks_free(r->checks);
    mem_free_secret(&r->secret);
    mem_free(r->denial);
    mem_free(r);
}

static void reviews_free(struct access_review *r)
{
    while (r) {
        struct access_review *next = r->next;

        review_free(r);
        r = next;
    }
}

void page_access_free(struct page_access *a)
{
    if (!a)
        return;
    reviews_free(a->waiting);
    reviews_free(a->in_flight);
    page_cache_free(a->cache);
    mem_free(a);
}

void page_access_count(const struct page_access *a,
                       uint64_t *ret_sent,
                       uint64_t *ret_kept)
{
    *ret_sent = a->n_sent;
    *ret_kept = a->n_kept;
}

/* --- checks ----------------------------------------------------------------------- */

static struct access_check *check_new(const struct page_right *right)
{
    const char *s[PAGE_RIGHT_STRINGS];
    struct access_check *c;
    size_t n = 0;
    char *p;

    page_right_strings(right, s);
    for (size_t i = 0; i < PAGE_RIGHT_STRINGS; i++)
        n += strlen(s[i]) + 1;
    c = mem_zalloc(sizeof(*c) + n);
    if (!c)
        return NULL;
    p = c->text;
    for (size_t i = 0; i < PAGE_RIGHT_STRINGS; i++) {
        n = strlen(s[i]) + 1;
        memcpy(p, s[i], n);
        s[i] = p;
        p += n;
    }
    c->right = (struct page_right){s[0], s[1], s[2], s[3], s[4], s[5]};
    return c;
}

static void
check_answer(struct page_access *a, struct access_check *c, int http, const char *why)
{
    page_access_fn fn = c->fn;
    void *arg = c->arg;

    a->n_checks--;
    if (!c->has_waited && (http == 200 || http == 401 || http == 403))
        a->n_kept++;
    mem_free(c);
    fn(arg, http, why);
}

/* NULL: out of memory. */
static char *denial_new(const struct page_right *right, const char *user)
{
    CLEANUP(strbuf_release) struct strbuf s;

    strbuf_init(&s, BODY_MAX_BYTES);
    page_right_denial(right, user, &s);
    return strbuf_take(&s);
}

static void check_deny(struct page_access *a, struct access_check *c, const char *user)
{
    AUTOFREE char *why = denial_new(&c->right, user);

    check_answer(a, c, why ? 403 : 503, why ? why : "out of memory");
}

static void review_join(struct access_review *r, struct access_check *c)
{
    struct access_check **p = &r->checks;

    while (*p)
        p = &(*p)->next;
    c->next = NULL;
    c->has_waited = true;
    *p = c;
}

static struct access_review *review_find(struct page_access *a,
                                         enum kube_kind kind,
                                         const struct page_hash *hash,
                                         uint64_t owner)
{
    struct access_review *const lists[] = {a->in_flight, a->waiting};

    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        for (struct access_review *r = lists[i]; r; r = r->next) {
            if (r->kind == kind && r->owner == owner
                && mac_equal(r->hash.b, hash->b) == 1)
                return r;
        }
    }
    return NULL;
}

/* Behind those of owners who are known, and a first review of a token behind all. */
static void review_wait(struct access_review *r)
{
    struct access_review **p = &r->access->waiting;

    while (*p && ((*p)->is_known || !(r->is_known || r->is_second)))
        p = &(*p)->next;
    r->next = *p;
    *p = r;
}

/* c waits in a new review for hash. Takes ownership of secret and denial; NULL: out of
 * memory. */
static void review_add(struct page_access *a,
                       struct access_check *c,
                       const struct access_review *like)
{
    struct access_review *r = mem_alloc(sizeof(*r));

    if (!r || !like->secret || (like->kind == KUBE_ACCESS_REVIEW && !like->denial)) {
        struct access_review gone = *like;

        mem_free_secret(&gone.secret);
        mem_free(gone.denial);
        mem_free(r);
        check_answer(a, c, 503, "out of memory");
        return;
    }
    *r = *like;
    r->access = a;
    review_wait(r);
    review_join(r, c);
}

/* owner: NULL, or who owned the token a while ago. */
static void check_token(struct page_access *a,
                        struct access_check *c,
                        const char *token,
                        const struct page_owner *owner)
{
    struct access_review like = {.kind = KUBE_TOKEN_REVIEW,
                                 .hash = c->token,
                                 .is_known = owner != NULL,
                                 .is_ordinary = owner && owner->is_ordinary};
    struct access_review *r = review_find(a, like.kind, &like.hash, 0);

    if (r) {
        review_join(r, c);
    } else if ((!owner && a->n_checks > MAX_UNKNOWN)
               || !page_cache_pay(a->cache, owner ? owner->number : 0,
                                  clock_now_ns())) {
        check_answer(a, c, 429, too_many);
    } else {
        like.secret = mem_strdup(token);
        review_add(a, c, &like);
    }
}

static void check_right(struct page_access *a,
                        struct access_check *c,
                        const struct page_owner *owner)
{
    struct access_review like = {
        .kind = KUBE_ACCESS_REVIEW, .is_known = true, .owner = owner->number};
    uint64_t now_ns = clock_now_ns();
    struct access_review *r;
    struct strbuf body;

    page_right_hash(&c->right, &like.hash);
    switch (page_cache_right(a->cache, owner->number, &like.hash, now_ns)) {
    case PAGE_YES:
        check_answer(a, c, 200, "");
        return;
    case PAGE_NO:
        check_deny(a, c, owner->name);
        return;
    case PAGE_UNKNOWN:
        break;
    }
    r = review_find(a, like.kind, &like.hash, like.owner);
    if (r) {
        review_join(r, c);
    } else if (!page_cache_pay(a->cache, owner->number, now_ns)) {
        check_answer(a, c, 429, too_many);
    } else {
        strbuf_init(&body, BODY_MAX_BYTES);
        page_review_write_right(owner, &c->right, &body);
        like.secret = strbuf_take(&body);
        strbuf_release(&body);
        like.denial = denial_new(&c->right, owner->name);
        review_add(a, c, &like);
    }
}

/* token: NULL after it was reviewed. */
static void check_step(struct page_access *a, struct access_check *c, const char *token)
{
    const struct page_owner *owner;

    switch (page_cache_token(a->cache, &c->token, clock_now_ns(), &owner)) {
    case PAGE_YES:
        check_right(a, c, owner);
        return;
    case PAGE_NO:
        check_answer(a, c, 401, not_valid);
        return;
    case PAGE_UNKNOWN:
        break;
    }
    if (token)
        check_token(a, c, token, owner);
    else /* displaced at once by those of PAGE_OWNERS other tokens */
        check_answer(a, c, 429, too_many);
}

/* --- reviews ---------------------------------------------------------------------- */

/* http: the answer to all checks of r; 0: their token is known now, they go on. */
static void review_end(struct access_review *r, int http, const char *why)
{
    struct page_access *a = r->access;
    struct access_batch batch = {a->batch, TAKE(r->checks)};

    a->batch = &batch;
    while (batch.checks) {
        struct access_check *c = batch.checks;

        batch.checks = c->next;
        if (http)
            check_answer(a, c, http, why);
        else
            check_step(a, c, NULL);
    }
    a->batch = batch.outer;
    review_free(r);
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

    strbuf_init_secret(&body, BODY_MAX_BYTES);
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

    if (!a->waiting || a->n_in_flight >= MAX_IN_FLIGHT)
        return UINT64_MAX;
    ready_ns = limit_ready_ns(&a->limit);
    paused_ns = kube_paused_ns(a->kube);
    return ready_ns > paused_ns ? ready_ns : paused_ns;
}

void page_access_tick(struct page_access *a, uint64_t now_ns)
{
    while (page_access_next_ns(a) <= now_ns && limit_take(&a->limit, now_ns)) {
        struct access_review **p = access_choose(a), *r = *p;

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
        review_wait(r);
        return;
    }
    if (rc == 0) {
        page_cache_refuse(a->cache, &r->hash, clock_now_ns());
        review_end(r, 401, not_valid);
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

/* --- for the page ----------------------------------------------------------------- */

void page_access_check(struct page_access *a,
                       const char *token,
                       const struct page_right *right,
                       page_access_fn fn,
                       void *arg)
{
    struct access_check *c;

    if (!token || !*token) {
        fn(arg, 401, "a token is needed");
        return;
    }
    if (!page_token_is_possible(token)) {
        fn(arg, 401,
           "this is no token: it is longer than 16 KiB or has characters that "
           "no token has");
        return;
    }
    if (a->n_checks >= MAX_WAITING) {
        fn(arg, 429, too_many);
        return;
    }
    c = check_new(right);
    if (!c) {
        fn(arg, 503, "out of memory");
        return;
    }
    a->n_checks++;
    c->fn = fn;
    c->arg = arg;
    page_cache_hash(a->cache, token, &c->token);
    check_step(a, c, token);
    page_access_tick(a, clock_now_ns());
}

static void
checks_cancel(struct page_access *a, struct access_check **p, const void *arg)
{
    while (*p) {
        struct access_check *c = *p;

        if (c->arg != arg) {
            p = &c->next;
            continue;
        }
        *p = c->next;
        a->n_checks--;
        mem_free(c);
    }
}

/* A review that is sent goes on: its answer is kept for the next check. */
void page_access_cancel(struct page_access *a, const void *arg)
{
    for (struct access_batch *b = a->batch; b; b = b->outer)
        checks_cancel(a, &b->checks, arg);
    for (struct access_review *r = a->in_flight; r; r = r->next)
        checks_cancel(a, &r->checks, arg);
    for (struct access_review **p = &a->waiting; *p;) {
        struct access_review *r = *p;

        checks_cancel(a, &r->checks, arg);
        if (r->checks) {
            p = &r->next;
            continue;
        }
        *p = r->next;
        review_free(r);
    }
}
