/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the owner of a bearer token may read something: the API server decides, by a
 * TokenReview and a SubjectAccessReview. Its answers are kept for a while
 * (core/page_cache.h). One thread; nothing blocks. */
#ifndef OPERATOR_PAGE_PAGE_ACCESS_H
#define OPERATOR_PAGE_PAGE_ACCESS_H

#include "operator/kube/client.h"
#include "operator/page/core/page_review.h"

struct page_access;
/* Sends its requests by k, at a rate of their own. keep_ns: how long a valid token and a right are kept. -ENOMEM,
 * or the errno of getrandom. */
int page_access_new(struct kube *k, uint64_t keep_ns, struct page_access **ret);
void page_access_free(struct page_access *a); /* accepts NULL; calls no one back */

/* http: 200: allowed; 401: no valid token; 403: no right; 429: too many checks wait;
 * 503: the API server did not answer, or refused the operator itself. why: one sentence
 * for the viewer, "" for 200; valid during the call. */
typedef void (*page_access_fn)(void *arg, int http, const char *why);

/* Calls fn exactly once, possibly before it returns. token: NULL or "" for none; it is
 * not stored (only a keyed hash of it), not logged, and wiped from requests. Equal checks
 * that wait share one request. They may wait for a minute, if the API server requests a
 * pause: the caller cancels what is too late. */
void page_access_check(struct page_access *a,
                       const char *token,
                       const struct page_right *right,
                       page_access_fn fn,
                       void *arg);
/* Checks that wait with that arg are not called back any more. */
void page_access_cancel(struct page_access *a, const void *arg);

/* A number for the token: equal for equal tokens, and says nothing about them. */
uint64_t page_access_number(const struct page_access *a, const char *token);

/* When page_access_tick has work; UINT64_MAX: none. */
uint64_t page_access_next_ns(const struct page_access *a);
void page_access_tick(struct page_access *a, uint64_t now_ns); /* sends what is due */

/* For metrics: reviews sent, and checks answered from the cache, since the start. */
void page_access_count(const struct page_access *a,
                       uint64_t *ret_sent,
                       uint64_t *ret_kept);

#endif
