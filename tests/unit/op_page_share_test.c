/* SPDX-License-Identifier: Apache-2.0 */
/* Equal queries of the status page share one answer. */
#include "tests/unit/unit.h"

#include "operator/page/core/page_share.h"
#include "runtime/base/mem.h"
#include "tests/unit/torture.h"

#define SECOND 1000000000ull

struct viewer {
    int n, http;
    char body[64];
    struct page_share *share; /* to act on when it is called back */
    const struct viewer *cancels;
    struct viewer *asks;
    const struct page_query *query;
};

static void on_body(void *arg, int http, const char *body, size_t n)
{
    struct viewer *v = arg;

    v->n++;
    v->http = http;
    assert_int_equal(strlen(body), n);
    (void)snprintf(v->body, sizeof(v->body), "%s", body);
    if (v->cancels)
        page_share_cancel(v->share, v->cancels);
    if (v->asks)
        assert_int_equal(
            page_share_ask(v->share, v->query, 10 * SECOND, on_body, v->asks), 0);
}

static void
share_end(struct page_share *s, struct page_item *i, uint64_t now_ns, const char *body)
{
    page_share_end(s, i, now_ns, 200, mem_strdup(body), strlen(body));
}

static struct page_query
query_make(enum page_fetch_what what, const char *key, int64_t rank)
{
    return (struct page_query){.what = what, .key = key, .rank = rank, .tail = 10};
}

UNIT_TEST(equal_queries_are_fetched_once_in_the_time_of_an_answer)
{
    struct page_share *s = page_share_new();
    struct page_query q = query_make(PAGE_EVENTS, "a/b", 0);
    struct viewer v[3] = {{0}}, late = {0};
    struct page_item *i;

    for (size_t k = 0; k < 2; k++)
        assert_int_equal(page_share_ask(s, &q, SECOND, on_body, &v[k]), 0);
    i = page_share_take(s);
    assert_non_null(i);
    assert_string_equal(page_item_query(i)->key, "a/b");
    assert_null(page_share_take(s));
    assert_int_equal(page_share_ask(s, &q, SECOND, on_body, &v[2]), 0); /* in flight */
    assert_null(page_share_take(s));
    share_end(s, i, 10 * SECOND, "x");
    for (size_t k = 0; k < 3; k++) {
        assert_int_equal(v[k].n, 1);
        assert_int_equal(v[k].http, 200);
        assert_string_equal(v[k].body, "x");
    }
    assert_int_equal(
        page_share_ask(s, &q, 10 * SECOND + PAGE_SHARE_NS - 1, on_body, &late), 0);
    assert_int_equal(late.n, 1);
    assert_int_equal(page_share_ask(s, &q, 10 * SECOND + PAGE_SHARE_NS, on_body, &late),
                     0);
    assert_int_equal(late.n, 1);
    assert_non_null(page_share_take(s));
    page_share_free(s);
}

UNIT_TEST(queries_that_differ_are_fetched_apart)
{
    struct page_query rows[] = {
        query_make(PAGE_EVENTS, "a/b", 0), query_make(PAGE_EVENTS, "a/c", 0),
        query_make(PAGE_RANKS, "a/b", 0),  query_make(PAGE_LOG, "a/b", 0),
        query_make(PAGE_LOG, "a/b", 1),    query_make(PAGE_LOG, "a/b", 1)};
    struct page_share *s = page_share_new();
    struct viewer v = {0};

    rows[5].tail = 11;
    for (size_t k = 0; k < ARRAY_LEN(rows); k++)
        assert_int_equal(page_share_ask(s, &rows[k], 0, on_body, &v), 0);
    for (size_t k = 0; k < ARRAY_LEN(rows); k++) { /* in their order */
        struct page_item *i = page_share_take(s);

        assert_non_null(i);
        assert_int_equal(page_item_query(i)->what, rows[k].what);
        assert_int_equal(page_item_query(i)->tail, rows[k].tail);
    }
    assert_null(page_share_take(s));
    rows[0].rank = 7; /* means nothing for Events */
    assert_int_equal(page_share_ask(s, &rows[0], 0, on_body, &v), 0);
    assert_null(page_share_take(s));
    page_share_free(s);
}

UNIT_TEST(few_are_in_flight_and_not_too_many_wait)
{
    struct page_share *s = page_share_new();
    struct page_item *i = NULL;
    struct viewer v = {0}, more = {0};
    char key[32];

    for (size_t k = 0; k < PAGE_SHARE_WAITERS; k++) {
        struct page_query q = query_make(PAGE_LOG, key, 0);

        (void)snprintf(key, sizeof(key), "a/%zu", k % 100);
        assert_int_equal(page_share_ask(s, &q, 0, on_body, &v), 0);
    }
    assert_int_equal(
        page_share_ask(s, &(struct page_query){.key = "a/0"}, 0, on_body, &more),
        -EAGAIN);
    for (size_t k = 0; k < PAGE_SHARE_FLIGHT; k++) {
        i = page_share_take(s);
        assert_non_null(i);
    }
    assert_null(page_share_take(s));
    share_end(s, i, 1, "x");
    assert_int_equal(v.n, 3); /* of 256, the 16th of 100 keys */
    assert_non_null(page_share_take(s));
    assert_null(page_share_take(s));
    assert_int_equal(
        page_share_ask(s, &(struct page_query){.key = "a/0"}, 0, on_body, &more), 0);
    page_share_free(s);
    assert_int_equal(more.n, 0);
}

UNIT_TEST(agents_and_the_api_server_do_not_wait_for_each_other)
{
    static const enum page_fetch_what of[][2] = {{PAGE_LOG, PAGE_RANKS},
                                                 {PAGE_STACKS, PAGE_EVENTS}};

    for (size_t n = 0; n < ARRAY_LEN(of); n++) {
        struct page_share *s = page_share_new();
        struct viewer v = {0};
        struct page_item *i;
        char key[16];

        for (size_t k = 0; k <= PAGE_SHARE_WAITERS; k++) {
            struct page_query q = query_make(of[n][0], key, 0);

            (void)snprintf(key, sizeof(key), "a/%zu", k);
            assert_int_equal(page_share_ask(s, &q, SECOND, on_body, &v),
                             k < PAGE_SHARE_WAITERS ? 0 : -EAGAIN);
        }
        while ((i = page_share_take(s)))
            assert_int_equal(page_item_query(i)->what, of[n][0]);
        assert_int_equal(page_share_ask(s, &(struct page_query){of[n][1], "a/b", 0, 10},
                                        SECOND, on_body, &v),
                         0);
        i = page_share_take(s);
        assert_non_null(i);
        assert_int_equal(page_item_query(i)->what, of[n][1]);
        share_end(s, i, SECOND, "x");
        assert_int_equal(v.n, 1);
        assert_null(page_share_take(s)); /* as many as before are open */
        page_share_free(s);
    }
}

UNIT_TEST(a_cancelled_query_is_not_called_back)
{
    struct page_share *s = page_share_new();
    struct page_query a = query_make(PAGE_EVENTS, "a", 0),
                      b = query_make(PAGE_EVENTS, "b", 0);
    struct viewer v[3] = {{0}};
    struct page_item *i;

    assert_int_equal(page_share_ask(s, &a, 0, on_body, &v[0]), 0);
    page_share_cancel(s, &v[0]);
    assert_null(page_share_take(s)); /* no one wants it */
    for (size_t k = 0; k < 3; k++)
        assert_int_equal(page_share_ask(s, &b, 0, on_body, &v[k]), 0);
    i = page_share_take(s);
    page_share_cancel(s, &v[2]); /* the last */
    assert_int_equal(page_share_ask(s, &b, 0, on_body, &v[2]), 0);
    page_share_cancel(s, &v[0]);
    share_end(s, i, 1, "x");
    assert_int_equal(v[0].n, 0);
    assert_int_equal(v[1].n, 1);
    assert_int_equal(v[2].n, 1);
    page_share_free(s);
}

UNIT_TEST(who_is_called_back_may_cancel_others_and_ask)
{
    struct page_share *s = page_share_new();
    struct page_query q = query_make(PAGE_EVENTS, "a", 0);
    struct viewer v[3] = {{0}}, again = {0};
    struct page_item *i;

    v[0] = (struct viewer){.share = s, .cancels = &v[1], .asks = &again, .query = &q};
    for (size_t k = 0; k < 3; k++)
        assert_int_equal(page_share_ask(s, &q, 0, on_body, &v[k]), 0);
    i = page_share_take(s);
    share_end(s, i, 10 * SECOND, "x");
    assert_int_equal(v[0].n, 1);
    assert_int_equal(v[1].n, 0);
    assert_int_equal(v[2].n, 1);
    assert_int_equal(again.n, 1);
    page_share_free(s);
}

static void share_keep(struct page_share *s, const char *key, uint64_t now_ns, size_t n)
{
    struct page_query q = query_make(PAGE_STACKS, key, 0);
    struct viewer v = {0};
    char *body = mem_alloc(n + 1);

    memset(body, 'x', n);
    body[n] = '\0';
    assert_int_equal(page_share_ask(s, &q, now_ns, on_body, &v), 0);
    page_share_end(s, page_share_take(s), now_ns, 200, body, n);
    assert_int_equal(v.n, 1);
}

static int share_has(struct page_share *s, const char *key, uint64_t now_ns)
{
    struct page_query q = query_make(PAGE_STACKS, key, 0);
    struct viewer v = {0};

    assert_int_equal(page_share_ask(s, &q, now_ns, on_body, &v), 0);
    page_share_cancel(s, &v);
    return v.n;
}

UNIT_TEST(the_oldest_answers_go_when_they_are_too_large_together)
{
    struct page_share *s = page_share_new();
    char key[8] = "k0";

    for (uint64_t k = 0; k < 4; k++) {
        key[1] = (char)('0' + k);
        share_keep(s, key, 1 + k, 3u << 20);
        assert_true(page_share_bytes(s) <= PAGE_SHARE_BYTES);
    }
    assert_int_equal(share_has(s, "k1", 5), 0);
    assert_int_equal(share_has(s, "k2", 5), 1);
    assert_int_equal(share_has(s, "k3", 5), 1);
    assert_int_equal(share_has(s, "k3", 5 * SECOND), 0);
    assert_int_equal(page_share_bytes(s), 0);
    share_keep(s, "huge", 1, PAGE_SHARE_BYTES + 1u);
    assert_int_equal(page_share_bytes(s), 0);
    page_share_free(s);
}

UNIT_TEST(not_too_many_small_answers_are_kept)
{
    struct page_share *s = page_share_new();
    char key[16];

    for (unsigned k = 0; k < PAGE_SHARE_KEPT + 2; k++) {
        (void)snprintf(key, sizeof(key), "k%u", k);
        share_keep(s, key, 1, 1);
    }
    assert_int_equal(share_has(s, "k1", 2), 0);
    assert_int_equal(share_has(s, "k2", 2), 1);
    page_share_free(s);
}

UNIT_TEST(without_memory_for_a_body_there_is_an_error)
{
    struct page_share *s = page_share_new();
    struct page_query q = query_make(PAGE_EVENTS, "a", 0);
    struct viewer v = {0};

    assert_int_equal(page_share_ask(s, &q, 0, on_body, &v), 0);
    page_share_end(s, page_share_take(s), 1, 200, NULL, 0);
    assert_int_equal(v.http, 503);
    assert_string_equal(v.body, "{\"error\":\"out of memory\"}");
    page_share_free(s);
}

static int ask_once(void *arg)
{
    struct page_share *s = page_share_new();
    struct page_query q = query_make(PAGE_EVENTS, "a", 0);
    int rc = s ? page_share_ask(s, &q, 0, on_body, arg) : -ENOMEM;

    page_share_free(s);
    return rc;
}

UNIT_TEST(who_cannot_wait_for_lack_of_memory_is_not_called_back)
{
    struct viewer v = {0};

    torture(ask_once, &v);
    assert_int_equal(v.n, 0);
}

UNIT_MAIN(NULL, NULL)
