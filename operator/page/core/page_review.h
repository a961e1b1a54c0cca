/* SPDX-License-Identifier: Apache-2.0 */
/* TokenReview (authentication.k8s.io/v1) and SubjectAccessReview (authorization.k8s.io/v1):
 * what is sent, and what the answers say. Pure. */
#ifndef OPERATOR_PAGE_CORE_PAGE_REVIEW_H
#define OPERATOR_PAGE_CORE_PAGE_REVIEW_H

#include "operator/doc/node.h"
#include "operator/page/core/page_cache.h"
#include "runtime/base/strbuf.h"

#define PAGE_AUDIENCE        "hvd-page"
#define PAGE_TOKEN_MAX_BYTES 16384u

/* What is to be read. No string is NULL. */
struct page_right {
    const char *verb;                    /* "list" */
    const char *group, *resource;        /* "ringmaster.dev", "horovodjobs" */
    const char *subresource, *ns, *name; /* "": none; ns "": all namespaces */
};
enum { PAGE_RIGHT_STRINGS = 6 };
/* The strings above in that order. */
void page_right_strings(const struct page_right *r,
                        const char *ret[static PAGE_RIGHT_STRINGS]);
void page_right_hash(const struct page_right *r, struct page_hash *ret);
/* "user jane may not list horovodjobs in namespace team" */
void page_right_denial(const struct page_right *r,
                       const char *user,
                       struct strbuf *out);

/* The characters and the length of a bearer token (b68token of RFC 6750). */
bool page_token_is_possible(const char *token);
/* token: a possible one. is_ordinary: as a token of the cluster, else as one that was made
 * for PAGE_AUDIENCE. out: an empty secret one. */
void page_review_write_token(const char *token, bool is_ordinary, struct strbuf *out);
/* 1: the token is valid; ret_owner's strings are in out (empty before) and in the answer.
 * 0: it is not. -ENOMEM; -E2BIG: the owner does not fit in out. */
int page_review_read_token(const struct node *answer,
                           bool is_ordinary,
                           struct page_owner *ret_owner,
                           struct strbuf *out);

/* strbuf_status() reports failures. */
void page_review_write_right(const struct page_owner *owner,
                             const struct page_right *right,
                             struct strbuf *out);
bool page_review_is_allowed(const struct node *answer);

#endif
