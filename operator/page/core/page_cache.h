/* SPDX-License-Identifier: Apache-2.0 */
/* The API server's answers about the viewers of the page, kept for a while: who owns a
 * token, and what the owner may read. Bounded, whatever viewers send; a token is known by
 * a keyed hash alone. It also limits how often the API server is asked: a viewer that is
 * known pays for itself, all unknown tokens pay together. Pure. */
#ifndef OPERATOR_PAGE_CORE_PAGE_CACHE_H
#define OPERATOR_PAGE_CORE_PAGE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/clock.h"
#include "runtime/base/sha256.h"

#define PAGE_KEEP_REFUSED_NS  (10 * NS_PER_S) /* of a token that is not valid */
#define PAGE_OWNERS           512u            /* then the least recently used goes */
#define PAGE_REFUSED          256u            /* then the oldest goes */
#define PAGE_RIGHTS           32u             /* of an owner; the same */
#define PAGE_OWNER_MAX_BYTES  32768u          /* name and spec */
/* Reviews without a pause, and then one in a time: of all unknown tokens together, and of
 * each owner, whose time is shorter where keep_ns is: a stream needs three in keep_ns, and
 * each job that is opened one. */
#define PAGE_UNKNOWN_BURST    256u
#define PAGE_UNKNOWN_EVERY_NS (NS_PER_S / 4)
#define PAGE_OWNER_BURST      32u
#define PAGE_OWNER_EVERY_NS   (NS_PER_S / 2)
#define PAGE_OWNER_PER_KEEP   120u
#define PAGE_OWNER_LEAST_NS   (NS_PER_S / 8)

struct page_hash {
    uint8_t b[SHA256_BYTES];
};

struct page_owner {
    uint64_t number;  /* not 0, never used twice */
    const char *name; /* of the user */
    const char *spec; /* JSON: what a SubjectAccessReview's spec says of the user */
    bool is_ordinary; /* the token is one of the cluster, not one for the page */
};

enum page_known { PAGE_UNKNOWN, PAGE_YES, PAGE_NO };

struct page_cache;
/* key: random. keep_ns: how long a valid token and a right are kept. NULL: out of memory. */
struct page_cache *page_cache_new(const uint8_t key[SHA256_BYTES], uint64_t keep_ns);
void page_cache_free(struct page_cache *c); /* accepts NULL */

void page_cache_hash(const struct page_cache *c,
                     const char *token,
                     struct page_hash *ret);
/* Whether the token is valid. *ret_owner: its owner, for PAGE_UNKNOWN too if there was an
 * answer that is too old now; else NULL. Valid until the next change of a token. */
enum page_known page_cache_token(struct page_cache *c,
                                 const struct page_hash *token,
                                 uint64_t now_ns,
                                 const struct page_owner **ret_owner);
/* The token is valid. owner->number is ignored; an owner whose name or spec is another
 * one now gets a new number and no rights. -ENOMEM; -E2BIG: PAGE_OWNER_MAX_BYTES. */
int page_cache_accept(struct page_cache *c,
                      const struct page_hash *token,
                      const struct page_owner *owner,
                      uint64_t now_ns);
/* The token is not valid. No other token's owner is dropped. */
void page_cache_refuse(struct page_cache *c,
                       const struct page_hash *token,
                       uint64_t now_ns);

/* Whether the owner of that number has that right; a right is a hash of its parts. */
enum page_known page_cache_right(struct page_cache *c,
                                 uint64_t owner,
                                 const struct page_hash *right,
                                 uint64_t now_ns);
/* No effect if there is no such owner any more. */
void page_cache_put_right(struct page_cache *c,
                          uint64_t owner,
                          const struct page_hash *right,
                          bool is_allowed,
                          uint64_t now_ns);

/* Takes one review from the budget of that owner, or for 0 from that of unknown tokens.
 * False: it is used up. */
bool page_cache_pay(struct page_cache *c, uint64_t owner, uint64_t now_ns);

#endif
