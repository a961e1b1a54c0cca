/* SPDX-License-Identifier: Apache-2.0 */
/* What page_access.c (checks) and page_access_review.c (reviews) share. */
#ifndef OPERATOR_PAGE_PAGE_ACCESS_STATE_H
#define OPERATOR_PAGE_PAGE_ACCESS_STATE_H

#include "operator/kube/limit.h"
#include "operator/page/core/page_cache.h"
#include "operator/page/page_access.h"

#define ACCESS_AT_ONCE  4u /* reviews */
#define ACCESS_BODY_MAX (128u << 10)

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

/* Checks whose review has ended; fn of one may cancel another. */
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

extern const char access_not_valid[]; /* why a token is refused */

/* The check ends with that answer, and is freed. */
void access_check_answer(struct page_access *a,
                         struct access_check *c,
                         int http,
                         const char *why);
/* Answers the check from the cache, or lets it wait for the next review. token: NULL after
 * its first review. */
void access_check_step(struct page_access *a,
                       struct access_check *c,
                       const char *token);
void access_review_wait(struct access_review *r); /* in the queue */
void access_review_free(struct access_review *r); /* accepts NULL */

#endif
