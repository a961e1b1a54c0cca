/* SPDX-License-Identifier: Apache-2.0 */
/* Three tables, searched from end to end: the largest has 512 rows, and a search costs
 * less than the HMAC before it.
 *
 *   owner    token -> name, spec, until     valid tokens; the least recently used goes
 *   right    of one owner: right -> allowed, until; the same
 *   refused  token -> until                 a ring; all rows last equally long
 *
 * Invariants
 *  1. A token is in one of owner and refused at most.
 *  2. Tokens that are not valid change nothing but the ring: a flood of them drops no
 *     owner, no right, and no budget of an owner.
 *  3. An owner that is too old stays until it is displaced: its next review is paid from
 *     its own budget, and begins with the kind of token that it was.
 * A budget is a virtual clock as in operator/kube/limit.c: paid_ns advances by the price
 * of a review and never lags more than the burst behind now. Called by page_access.c. */
#include "operator/page/core/page_cache.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/mem.h"

struct cache_right {
    struct page_hash hash;
    uint64_t until_ns, used; /* used 0: a free row */
    bool is_allowed;
};

struct cache_owner {
    struct page_hash token;
    struct page_owner owner; /* its strings are in text */
    uint64_t until_ns, used, paid_ns;
    struct cache_right rights[PAGE_RIGHTS];
    char text[];
};

struct cache_refused {
    struct page_hash token;
    uint64_t until_ns; /* 0: a free row */
};

struct page_cache {
    uint8_t key[SHA256_BYTES];
    struct cache_owner *owners[PAGE_OWNERS];
    size_t n_owners, next_refused;
    struct cache_refused refused[PAGE_REFUSED];
    uint64_t keep_ns, owner_every_ns, last_number, last_used, paid_ns;
};

struct page_cache *page_cache_new(const uint8_t key[SHA256_BYTES], uint64_t keep_ns)
{
    struct page_cache *c = mem_zalloc(sizeof(*c));

    if (!c)
        return NULL;
    memcpy(c->key, key, sizeof(c->key));
    c->keep_ns = keep_ns;
    c->owner_every_ns = earlier_ns(keep_ns / PAGE_OWNER_PER_KEEP, PAGE_OWNER_EVERY_NS);
    if (c->owner_every_ns < PAGE_OWNER_LEAST_NS)
        c->owner_every_ns = PAGE_OWNER_LEAST_NS;
    return c;
}

void page_cache_free(struct page_cache *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->n_owners; i++)
        mem_free(c->owners[i]);
    mem_wipe(c, sizeof(*c));
    mem_free(c);
}

void page_cache_hash(const struct page_cache *c,
                     const char *token,
                     struct page_hash *ret)
{
    struct hmac m;

    hmac_init(&m, c->key, sizeof(c->key));
    hmac_add(&m, token, strlen(token));
    hmac_end(&m, ret->b);
    mem_wipe(&m, sizeof(m)); /* the end of the token is in it */
}

static bool hash_is(const struct page_hash *a, const struct page_hash *b)
{
    return mac_equal(a->b, b->b) == 1;
}

/* --- tokens ----------------------------------------------------------------------- */

/* The index of the token's owner; n_owners if there is none. */
static size_t cache_find(const struct page_cache *c, const struct page_hash *token)
{
    size_t i = 0;

    while (i < c->n_owners && !hash_is(&c->owners[i]->token, token))
        i++;
    return i;
}

static struct cache_refused *cache_find_refused(struct page_cache *c,
                                                const struct page_hash *token)
{
    for (size_t i = 0; i < PAGE_REFUSED; i++) {
        if (c->refused[i].until_ns && hash_is(&c->refused[i].token, token))
            return &c->refused[i];
    }
    return NULL;
}

enum page_known page_cache_token(struct page_cache *c,
                                 const struct page_hash *token,
                                 uint64_t now_ns,
                                 const struct page_owner **ret_owner)
{
    size_t i = cache_find(c, token);
    struct cache_owner *o = i < c->n_owners ? c->owners[i] : NULL;
    const struct cache_refused *no = o ? NULL : cache_find_refused(c, token);

    *ret_owner = o ? &o->owner : NULL;
    if (o) {
        o->used = ++c->last_used;
        return now_ns < o->until_ns ? PAGE_YES : PAGE_UNKNOWN;
    }
    return no && now_ns < no->until_ns ? PAGE_NO : PAGE_UNKNOWN;
}

static void cache_drop(struct page_cache *c, size_t i)
{
    mem_free(c->owners[i]);
    c->owners[i] = c->owners[--c->n_owners];
}

static size_t cache_oldest(const struct page_cache *c)
{
    size_t oldest = 0;

    for (size_t i = 1; i < c->n_owners; i++) {
        if (c->owners[i]->used < c->owners[oldest]->used)
            oldest = i;
    }
    return oldest;
}

static struct cache_owner *cache_owner_new(const struct page_owner *from)
{
    size_t name_n = strlen(from->name) + 1, spec_n = strlen(from->spec) + 1;
    struct cache_owner *o = mem_zalloc(sizeof(*o) + name_n + spec_n);

    if (!o)
        return NULL;
    memcpy(o->text, from->name, name_n);
    memcpy(o->text + name_n, from->spec, spec_n);
    o->owner = (struct page_owner){.name = o->text, .spec = o->text + name_n};
    return o;
}

int page_cache_accept(struct page_cache *c,
                      const struct page_hash *token,
                      const struct page_owner *owner,
                      uint64_t now_ns)
{
    struct cache_refused *no = cache_find_refused(c, token);
    size_t i = cache_find(c, token);
    struct cache_owner *o = i < c->n_owners ? c->owners[i] : NULL, *old = o;

    if (strlen(owner->name) + strlen(owner->spec) > PAGE_OWNER_MAX_BYTES)
        return -E2BIG;
    if (!o || strcmp(o->owner.name, owner->name) != 0
        || strcmp(o->owner.spec, owner->spec) != 0) {
        o = cache_owner_new(owner);
        if (!o)
            return -ENOMEM;
        o->token = *token;
        o->owner.number = ++c->last_number;
        o->paid_ns = old ? old->paid_ns : 0;
        if (old || c->n_owners == PAGE_OWNERS)
            cache_drop(c, old ? i : cache_oldest(c));
        c->owners[c->n_owners++] = o;
    }
    if (no)
        no->until_ns = 0;
    o->owner.is_ordinary = owner->is_ordinary;
    o->until_ns = now_ns + c->keep_ns;
    o->used = ++c->last_used;
    return 0;
}

void page_cache_refuse(struct page_cache *c,
                       const struct page_hash *token,
                       uint64_t now_ns)
{
    struct cache_refused *no = cache_find_refused(c, token);
    size_t i = cache_find(c, token);

    if (i < c->n_owners)
        cache_drop(c, i);
    if (no)
        no->until_ns = 0; /* the ring stays in order of time */
    no = &c->refused[c->next_refused];
    c->next_refused = (c->next_refused + 1) % PAGE_REFUSED;
    *no = (struct cache_refused){*token, now_ns + PAGE_KEEP_REFUSED_NS};
}

/* --- rights ----------------------------------------------------------------------- */

static struct cache_owner *cache_numbered(struct page_cache *c, uint64_t number)
{
    for (size_t i = 0; i < c->n_owners; i++) {
        if (c->owners[i]->owner.number == number)
            return c->owners[i];
    }
    return NULL;
}

static struct cache_right *owner_right(struct cache_owner *o,
                                       const struct page_hash *right)
{
    for (size_t i = 0; i < PAGE_RIGHTS; i++) {
        if (o->rights[i].used && hash_is(&o->rights[i].hash, right))
            return &o->rights[i];
    }
    return NULL;
}

enum page_known page_cache_right(struct page_cache *c,
                                 uint64_t owner,
                                 const struct page_hash *right,
                                 uint64_t now_ns)
{
    struct cache_owner *o = cache_numbered(c, owner);
    struct cache_right *r = o ? owner_right(o, right) : NULL;

    if (!r || now_ns >= r->until_ns)
        return PAGE_UNKNOWN;
    r->used = ++c->last_used;
    return r->is_allowed ? PAGE_YES : PAGE_NO;
}

void page_cache_put_right(struct page_cache *c,
                          uint64_t owner,
                          const struct page_hash *right,
                          bool is_allowed,
                          uint64_t now_ns)
{
    struct cache_owner *o = cache_numbered(c, owner);
    struct cache_right *r = o ? owner_right(o, right) : NULL;

    if (!o)
        return;
    for (size_t i = 0; i < PAGE_RIGHTS && !r; i++) {
        if (!o->rights[i].used)
            r = &o->rights[i];
    }
    if (!r) {
        r = &o->rights[0];
        for (size_t i = 1; i < PAGE_RIGHTS; i++) {
            if (o->rights[i].used < r->used)
                r = &o->rights[i];
        }
    }
    *r = (struct cache_right){*right, now_ns + c->keep_ns, ++c->last_used, is_allowed};
}

/* --- budgets ---------------------------------------------------------------------- */

bool page_cache_pay(struct page_cache *c, uint64_t owner, uint64_t now_ns)
{
    struct cache_owner *o = owner ? cache_numbered(c, owner) : NULL;
    uint64_t *paid_ns = o ? &o->paid_ns : &c->paid_ns;
    uint64_t price_ns = o ? c->owner_every_ns : PAGE_UNKNOWN_EVERY_NS;
    uint64_t burst_ns = ((o ? PAGE_OWNER_BURST : PAGE_UNKNOWN_BURST) - 1) * price_ns;

    if (*paid_ns > now_ns)
        return false;
    if (*paid_ns + burst_ns < now_ns)
        *paid_ns = now_ns - burst_ns;
    *paid_ns += price_ns;
    return true;
}
