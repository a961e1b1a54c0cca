/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept of the answers about viewers, for how long, and what a flood displaces. */
#include "tests/unit/torture.h"

#include "operator/page/core/page_cache.h"

#define S       NS_PER_S
#define NOW     (1000 * S)

#define KEEP_NS (60 * NS_PER_S)

static const uint8_t cache_key[SHA256_BYTES] = {1, 2, 3};

static struct page_cache *cache_new(void)
{
    struct page_cache *c = page_cache_new(cache_key, KEEP_NS);

    assert_non_null(c);
    return c;
}

static struct page_hash
hash_of(const struct page_cache *c, const char *prefix, unsigned i)
{
    struct page_hash h;
    char token[32];

    (void)snprintf(token, sizeof(token), "%s%u", prefix, i);
    page_cache_hash(c, token, &h);
    return h;
}

static void accept_at(struct page_cache *c,
                      const struct page_hash *h,
                      const char *name,
                      const char *spec,
                      uint64_t now_ns)
{
    struct page_owner o = {.name = name, .spec = spec};

    assert_int_equal(page_cache_accept(c, h, &o, now_ns), 0);
}

/* The number of the token's owner; 0: it is not valid now. */
static uint64_t
owner_at(struct page_cache *c, const struct page_hash *h, uint64_t now_ns)
{
    const struct page_owner *o;

    return page_cache_token(c, h, now_ns, &o) == PAGE_YES ? o->number : 0;
}

static enum page_known
known_at(struct page_cache *c, const struct page_hash *h, uint64_t now_ns)
{
    const struct page_owner *o;

    return page_cache_token(c, h, now_ns, &o);
}

UNIT_TEST(hashes_differ_with_token_and_key)
{
    static const uint8_t other_key[SHA256_BYTES] = {1, 2, 4};
    struct page_cache *c = cache_new(), *d = page_cache_new(other_key, KEEP_NS);
    struct page_hash a = hash_of(c, "t", 1), b = hash_of(c, "t", 2),
                     e = hash_of(d, "t", 1);
    struct page_hash again = hash_of(c, "t", 1);

    assert_memory_equal(&a, &again, sizeof(a));
    assert_memory_not_equal(&a, &b, sizeof(a));
    assert_memory_not_equal(&a, &e, sizeof(a));
    page_cache_free(c);
    page_cache_free(d);
    page_cache_free(NULL);
}

UNIT_TEST(answers_are_kept_for_their_time)
{
    struct page_cache *c = cache_new();
    struct page_hash good = hash_of(c, "good", 0), bad = hash_of(c, "bad", 0);
    struct page_hash yes = hash_of(c, "right", 0), no = hash_of(c, "right", 1);
    uint64_t n;
    const struct {
        uint64_t after_ns;
        enum page_known good, bad, yes, no;
    } rows[] = {
        {0, PAGE_YES, PAGE_NO, PAGE_YES, PAGE_NO},
        {10 * S - 1, PAGE_YES, PAGE_NO, PAGE_YES, PAGE_NO},
        {10 * S, PAGE_YES, PAGE_UNKNOWN, PAGE_YES, PAGE_NO},
        {60 * S - 1, PAGE_YES, PAGE_UNKNOWN, PAGE_YES, PAGE_NO},
        {60 * S, PAGE_UNKNOWN, PAGE_UNKNOWN, PAGE_UNKNOWN, PAGE_UNKNOWN},
    };

    assert_int_equal(known_at(c, &good, NOW), PAGE_UNKNOWN);
    accept_at(c, &good, "jane", "{\"user\":\"jane\"}", NOW);
    page_cache_refuse(c, &bad, NOW);
    n = owner_at(c, &good, NOW);
    assert_int_equal(page_cache_right(c, n, &yes, NOW), PAGE_UNKNOWN);
    page_cache_put_right(c, n, &yes, true, NOW);
    page_cache_put_right(c, n, &no, false, NOW);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint64_t now_ns = NOW + rows[i].after_ns;

        assert_int_equal(known_at(c, &good, now_ns), rows[i].good);
        assert_int_equal(known_at(c, &bad, now_ns), rows[i].bad);
        assert_int_equal(page_cache_right(c, n, &yes, now_ns), rows[i].yes);
        assert_int_equal(page_cache_right(c, n, &no, now_ns), rows[i].no);
    }
    page_cache_free(c);
}

UNIT_TEST(the_same_owner_keeps_its_rights_and_a_changed_one_does_not)
{
    struct page_cache *c = cache_new();
    struct page_hash t = hash_of(c, "t", 0), right = hash_of(c, "right", 0);
    uint64_t n, changed;

    accept_at(c, &t, "jane", "{\"groups\":[\"a\"]}", NOW);
    n = owner_at(c, &t, NOW);
    page_cache_put_right(c, n, &right, true, NOW + 30 * S);
    accept_at(c, &t, "jane", "{\"groups\":[\"a\"]}", NOW + 60 * S);
    assert_int_equal(owner_at(c, &t, NOW + 61 * S), n);
    assert_int_equal(page_cache_right(c, n, &right, NOW + 61 * S), PAGE_YES);
    accept_at(c, &t, "jane", "{\"groups\":[\"b\"]}", NOW + 62 * S);
    changed = owner_at(c, &t, NOW + 63 * S);
    assert_true(changed > n);
    assert_int_equal(page_cache_right(c, changed, &right, NOW + 63 * S), PAGE_UNKNOWN);
    page_cache_put_right(c, n, &right, true, NOW + 63 * S); /* for the groups before */
    assert_int_equal(page_cache_right(c, n, &right, NOW + 63 * S), PAGE_UNKNOWN);
    assert_int_equal(page_cache_right(c, changed, &right, NOW + 63 * S), PAGE_UNKNOWN);
    accept_at(c, &t, "joan", "{\"groups\":[\"b\"]}", NOW + 64 * S);
    assert_true(owner_at(c, &t, NOW + 64 * S) > changed);
    page_cache_free(c);
}

UNIT_TEST(a_token_is_refused_or_accepted_as_the_last_answer_says)
{
    struct page_cache *c = cache_new();
    struct page_hash t = hash_of(c, "t", 0);

    page_cache_refuse(c, &t, NOW);
    accept_at(c, &t, "jane", "{}", NOW + S);
    assert_int_equal(known_at(c, &t, NOW + S), PAGE_YES);
    page_cache_refuse(c, &t, NOW + 2 * S);
    assert_int_equal(known_at(c, &t, NOW + 2 * S), PAGE_NO);
    page_cache_refuse(c, &t, NOW + 9 * S);
    assert_int_equal(known_at(c, &t, NOW + 13 * S), PAGE_NO);
    accept_at(c, &t, "jane", "{}", NOW + 13 * S);
    for (unsigned i = 1; i <= PAGE_OWNERS; i++) { /* displace it */
        struct page_hash other = hash_of(c, "t", i);

        accept_at(c, &other, "joan", "{}", NOW + 13 * S);
    }
    assert_int_equal(known_at(c, &t, NOW + 13 * S), PAGE_UNKNOWN);
    page_cache_free(c);
}

UNIT_TEST(an_old_owner_is_still_known_as_such)
{
    struct page_cache *c = cache_new();
    struct page_hash t = hash_of(c, "t", 0), other = hash_of(c, "t", 1);
    struct page_owner plain = {.name = "jane", .spec = "{}", .is_ordinary = true};
    const struct page_owner *o;

    assert_int_equal(page_cache_accept(c, &t, &plain, NOW), 0);
    assert_int_equal(page_cache_token(c, &t, NOW + 3600 * S, &o), PAGE_UNKNOWN);
    assert_non_null(o);
    assert_string_equal(o->name, "jane");
    assert_true(o->is_ordinary);
    assert_int_equal(page_cache_token(c, &other, NOW, &o), PAGE_UNKNOWN);
    assert_null(o);
    page_cache_free(c);
}

UNIT_TEST(the_least_recently_used_owner_goes)
{
    struct page_cache *c = cache_new();
    struct page_hash h[PAGE_OWNERS + 2];

    for (unsigned i = 0; i < PAGE_OWNERS + 2; i++)
        h[i] = hash_of(c, "t", i);
    for (unsigned i = 0; i < PAGE_OWNERS; i++)
        accept_at(c, &h[i], "u", "{}", NOW);
    assert_int_equal(known_at(c, &h[0], NOW), PAGE_YES); /* used: now 1 is the oldest */
    accept_at(c, &h[PAGE_OWNERS], "u", "{}", NOW);
    accept_at(c, &h[PAGE_OWNERS + 1], "u", "{}", NOW);
    for (unsigned i = 0; i < PAGE_OWNERS + 2; i++)
        assert_int_equal(known_at(c, &h[i], NOW),
                         i == 1 || i == 2 ? PAGE_UNKNOWN : PAGE_YES);
    page_cache_free(c);
}

UNIT_TEST(the_least_recently_used_right_of_an_owner_goes)
{
    struct page_cache *c = cache_new();
    struct page_hash a = hash_of(c, "a", 0), b = hash_of(c, "b", 0), r[PAGE_RIGHTS + 1];
    uint64_t n, other;

    accept_at(c, &a, "a", "{}", NOW);
    accept_at(c, &b, "b", "{}", NOW);
    n = owner_at(c, &a, NOW);
    other = owner_at(c, &b, NOW);
    for (unsigned i = 0; i <= PAGE_RIGHTS; i++)
        r[i] = hash_of(c, "right", i);
    page_cache_put_right(c, other, &r[1], false, NOW);
    for (unsigned i = 0; i < PAGE_RIGHTS; i++)
        page_cache_put_right(c, n, &r[i], true, NOW);
    assert_int_equal(page_cache_right(c, n, &r[0], NOW), PAGE_YES);
    page_cache_put_right(c, n, &r[PAGE_RIGHTS], false, NOW);
    for (unsigned i = 0; i < PAGE_RIGHTS; i++)
        assert_int_equal(page_cache_right(c, n, &r[i], NOW),
                         i == 1 ? PAGE_UNKNOWN : PAGE_YES);
    assert_int_equal(page_cache_right(c, n, &r[PAGE_RIGHTS], NOW), PAGE_NO);
    assert_int_equal(page_cache_right(c, other, &r[1], NOW), PAGE_NO);
    page_cache_put_right(c, n, &r[0], false, NOW); /* a new answer takes no new row */
    assert_int_equal(page_cache_right(c, n, &r[0], NOW), PAGE_NO);
    assert_int_equal(page_cache_right(c, n, &r[2], NOW), PAGE_YES);
    page_cache_free(c);
}

UNIT_TEST(a_flood_of_bad_tokens_drops_no_owner_and_takes_no_budget_of_one)
{
    struct page_cache *c = cache_new();
    struct page_hash h[PAGE_OWNERS], right = hash_of(c, "right", 0), last;
    unsigned paid = 0;
    uint64_t n;

    for (unsigned i = 0; i < PAGE_OWNERS; i++) {
        h[i] = hash_of(c, "good", i);
        accept_at(c, &h[i], "u", "{}", NOW);
    }
    n = owner_at(c, &h[7], NOW);
    page_cache_put_right(c, n, &right, true, NOW);
    for (unsigned i = 0; i < 100000; i++) { /* in 10 s */
        uint64_t now_ns = NOW + i * (S / 10000);

        last = hash_of(c, "bad", i);
        if (page_cache_pay(c, 0, now_ns)) {
            page_cache_refuse(c, &last, now_ns);
            paid++;
        }
    }
    assert_in_range(paid, PAGE_UNKNOWN_BURST + 39, PAGE_UNKNOWN_BURST + 40);
    for (unsigned i = 0; i < 1000; i++) {
        last = hash_of(c, "worse", i);
        page_cache_refuse(c, &last, NOW + 10 * S);
    }
    assert_int_equal(known_at(c, &last, NOW + 11 * S), PAGE_NO);
    last = hash_of(c, "worse", 999 - PAGE_REFUSED);
    assert_int_equal(known_at(c, &last, NOW + 11 * S), PAGE_UNKNOWN); /* displaced */
    for (unsigned i = 0; i < PAGE_OWNERS; i++)
        assert_int_equal(known_at(c, &h[i], NOW + 11 * S), PAGE_YES);
    assert_int_equal(page_cache_right(c, n, &right, NOW + 11 * S), PAGE_YES);
    for (unsigned i = 0; i < PAGE_OWNER_BURST; i++)
        assert_true(page_cache_pay(c, n, NOW + 11 * S));
    page_cache_free(c);
}

UNIT_TEST(a_budget_has_a_burst_and_a_rate)
{
    struct page_cache *c = cache_new();
    struct page_hash h[2] = {hash_of(c, "t", 0), hash_of(c, "t", 1)};
    uint64_t n, other;

    accept_at(c, &h[0], "a", "{}", NOW);
    accept_at(c, &h[1], "b", "{}", NOW);
    n = owner_at(c, &h[0], NOW);
    other = owner_at(c, &h[1], NOW);
    for (unsigned i = 0; i < PAGE_UNKNOWN_BURST; i++)
        assert_true(page_cache_pay(c, 0, NOW));
    for (unsigned i = 0; i < PAGE_OWNER_BURST; i++)
        assert_true(page_cache_pay(c, n, NOW));
    assert_false(page_cache_pay(c, 0, NOW));
    assert_false(page_cache_pay(c, n, NOW));
    assert_true(page_cache_pay(c, other, NOW));
    assert_false(page_cache_pay(c, 0, NOW + PAGE_UNKNOWN_EVERY_NS - 1));
    assert_true(page_cache_pay(c, 0, NOW + PAGE_UNKNOWN_EVERY_NS));
    assert_false(page_cache_pay(c, 0, NOW + PAGE_UNKNOWN_EVERY_NS));
    assert_true(page_cache_pay(c, n, NOW + PAGE_OWNER_EVERY_NS));
    assert_false(page_cache_pay(c, n, NOW + PAGE_OWNER_EVERY_NS));
    accept_at(c, &h[0], "a", "{\"groups\":[]}", NOW); /* no way to a new budget */
    assert_false(page_cache_pay(c, owner_at(c, &h[0], NOW), NOW + PAGE_OWNER_EVERY_NS));
    for (unsigned i = 0; i < PAGE_UNKNOWN_BURST; i++)
        assert_true(page_cache_pay(c, 0, NOW + 120 * S));
    assert_false(page_cache_pay(c, 0, NOW + 120 * S));
    page_cache_free(c);
}

UNIT_TEST(an_owner_pays_less_where_answers_are_kept_for_less_time)
{
    static const struct {
        uint64_t keep_ns, every_ns;
    } rows[] = {{S, S / 8}, {30 * S, S / 4}, {60 * S, S / 2}, {3600 * S, S / 2}};

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct page_cache *c = page_cache_new(cache_key, rows[i].keep_ns);
        struct page_hash t = hash_of(c, "t", 0);
        uint64_t n;

        accept_at(c, &t, "a", "{}", NOW);
        n = owner_at(c, &t, NOW);
        for (unsigned b = 0; b < PAGE_OWNER_BURST; b++)
            assert_true(page_cache_pay(c, n, NOW));
        assert_false(page_cache_pay(c, n, NOW + rows[i].every_ns - 1));
        assert_true(page_cache_pay(c, n, NOW + rows[i].every_ns));
        page_cache_free(c);
    }
}

UNIT_TEST(an_owner_that_is_too_large_is_not_kept)
{
    struct page_cache *c = cache_new();
    struct page_hash t = hash_of(c, "t", 0);
    char spec[PAGE_OWNER_MAX_BYTES + 2];
    struct page_owner o = {.name = "", .spec = spec};

    memset(spec, 'x', sizeof(spec) - 1);
    spec[sizeof(spec) - 1] = '\0';
    assert_int_equal(page_cache_accept(c, &t, &o, NOW), -E2BIG);
    assert_int_equal(known_at(c, &t, NOW), PAGE_UNKNOWN);
    spec[sizeof(spec) - 2] = '\0';
    assert_int_equal(page_cache_accept(c, &t, &o, NOW), 0);
    page_cache_free(c);
}

static int cache_fill(void *arg)
{
    struct page_cache *c = page_cache_new(cache_key, KEEP_NS);
    struct page_owner o = {.name = "jane", .spec = "{}"};
    struct page_hash t;
    int rc = -ENOMEM;

    (void)arg;
    if (!c)
        return rc;
    t = hash_of(c, "t", 0);
    rc = page_cache_accept(c, &t, &o, NOW);
    if (rc == 0) {
        o.spec = "{\"uid\":\"1\"}";
        rc = page_cache_accept(c, &t, &o, NOW);
        if (rc < 0) /* what was there stays */
            assert_int_equal(known_at(c, &t, NOW), PAGE_YES);
    }
    page_cache_free(c);
    return rc;
}

UNIT_TEST(a_cache_without_memory_keeps_what_it_has)
{
    torture(cache_fill, NULL);
}

UNIT_MAIN(NULL, NULL)
