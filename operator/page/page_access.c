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

#include "operator/page/page_access_state.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"

#define REVIEW_QPS   100u
#define REVIEW_BURST 100u
#define MAX_UNKNOWN  512u  /* checks that wait: above it no new token is accepted, */
#define MAX_WAITING  1024u /* and above this no check at all */

static const char too_many[] = "too many checks wait: try again in a few seconds";
const char access_not_valid[] = "the token is not valid, or has expired";

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

void access_review_free(struct access_review *r)
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

        access_review_free(r);
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

uint64_t page_access_number(const struct page_access *a, const char *token)
{
    struct page_hash hash;
    uint64_t n;

    page_cache_hash(a->cache, token, &hash);
    memcpy(&n, hash.b, sizeof(n));
    return n;
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

void access_check_answer(struct page_access *a,
                         struct access_check *c,
                         int http,
                         const char *why)
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

    strbuf_init(&s, ACCESS_BODY_MAX);
    page_right_denial(right, user, &s);
    return strbuf_take(&s);
}

static void check_deny(struct page_access *a, struct access_check *c, const char *user)
{
    AUTOFREE char *why = denial_new(&c->right, user);

    access_check_answer(a, c, why ? 403 : 503, why ? why : "out of memory");
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
void access_review_wait(struct access_review *r)
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
        access_check_answer(a, c, 503, "out of memory");
        return;
    }
    *r = *like;
    r->access = a;
    access_review_wait(r);
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
        access_check_answer(a, c, 429, too_many);
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
        access_check_answer(a, c, 200, "");
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
        access_check_answer(a, c, 429, too_many);
    } else {
        strbuf_init(&body, ACCESS_BODY_MAX);
        page_review_write_right(owner, &c->right, &body);
        like.secret = strbuf_take(&body);
        strbuf_release(&body);
        like.denial = denial_new(&c->right, owner->name);
        review_add(a, c, &like);
    }
}

/* token: NULL after it was reviewed. */
void access_check_step(struct page_access *a, struct access_check *c, const char *token)
{
    const struct page_owner *owner;

    switch (page_cache_token(a->cache, &c->token, clock_now_ns(), &owner)) {
    case PAGE_YES:
        check_right(a, c, owner);
        return;
    case PAGE_NO:
        access_check_answer(a, c, 401, access_not_valid);
        return;
    case PAGE_UNKNOWN:
        break;
    }
    if (token)
        check_token(a, c, token, owner);
    else /* displaced at once by those of PAGE_OWNERS other tokens */
        access_check_answer(a, c, 429, too_many);
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
    access_check_step(a, c, token);
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

/* A review that is sent is not cancelled: its answer is kept for the next check. */
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
        access_review_free(r);
    }
}
