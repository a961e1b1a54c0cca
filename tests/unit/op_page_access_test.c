/* SPDX-License-Identifier: Apache-2.0 */
/* Who is allowed, what is remembered, how much is sent. */
#include "tests/unit/op_page_access_world.h"

UNIT_TEST(a_viewer_with_a_token_for_the_page_is_allowed_and_remembered)
{
    struct viewers w;
    struct asker_arg me = {&w};
    uint64_t sent, kept;

    viewers_init(&w);
    check(&me, "t-jane");
    assert_string_equal(next_body(&w), "{\"apiVersion\":\"authentication.k8s.io/v1\","
                                       "\"kind\":\"TokenReview\",\"spec\":{\"token\":"
                                       "\"t-jane\",\"audiences\":[\"hvd-page\"]}}");
    answer_owner(&w, "jane", "hvd-page");
    assert_int_equal(w.n, 0);
    assert_non_null(strstr(next_body(&w),
                           "\"spec\":{\"user\":\"jane\",\"groups\":[\"g\"],"
                           "\"resourceAttributes\":{\"verb\":\"list\","));
    answer_right(&w, true);
    expect_seen(&w, 1, &me, 200, "");
    check(&me, "t-jane");
    expect_seen(&w, 2, &me, 200, "");
    assert_int_equal(n_open(&w), 0);
    page_access_count(w.a, &sent, &kept);
    assert_int_equal(sent, 2);
    assert_int_equal(kept, 1);
    viewers_release(&w);
}

UNIT_TEST(an_ordinary_token_is_reviewed_twice_once)
{
    struct viewers w;
    struct asker_arg me = {&w};

    viewers_init(&w);
    check(&me, "t-jane");
    answer_invalid(&w);
    assert_int_equal(w.n, 0);
    assert_string_equal(next_body(&w),
                        "{\"apiVersion\":\"authentication.k8s.io/v1\",\"kind\":"
                        "\"TokenReview\",\"spec\":{\"token\":\"t-jane\"}}");
    answer_owner(&w, "jane", "https://kubernetes.default.svc");
    answer_right(&w, false);
    expect_seen(&w, 1, &me, 403,
                "user jane may not list horovodjobs in namespace team");
    check(&me, "t-jane");
    expect_seen(&w, 2, &me, 403,
                "user jane may not list horovodjobs in namespace team");
    now_ns += KEEP_NS; /* what succeeded then is sent first */
    check(&me, "t-jane");
    assert_null(strstr(next_body(&w), "audiences"));
    answer_invalid(&w); /* and the other one then */
    assert_non_null(strstr(next_body(&w), "audiences"));
    answer_invalid(&w);
    expect_seen(&w, 3, &me, 401, "the token is not valid, or has expired");
    viewers_release(&w);
}

UNIT_TEST(an_audience_that_was_not_confirmed_does_not_count)
{
    struct viewers w;
    struct asker_arg me = {&w};

    viewers_init(&w);
    check(&me, "t");
    answer_owner(&w, "jane", "vault");
    answer_invalid(&w);
    expect_seen(&w, 1, &me, 401, "the token is not valid, or has expired");
    viewers_release(&w);
}

UNIT_TEST(a_token_that_is_not_valid_is_remembered_for_ten_seconds)
{
    struct viewers w;
    struct asker_arg me = {&w};

    viewers_init(&w);
    check(&me, "junk");
    answer_invalid(&w);
    answer_invalid(&w);
    expect_seen(&w, 1, &me, 401, NULL);
    now_ns += PAGE_KEEP_REFUSED_NS - 1;
    check(&me, "junk");
    expect_seen(&w, 2, &me, 401, NULL);
    assert_int_equal(n_open(&w), 0);
    now_ns += 1;
    check(&me, "junk");
    assert_int_equal(n_open(&w), 1);
    viewers_release(&w);
}

UNIT_TEST(what_can_be_no_token_is_refused_without_a_request)
{
    static char longest[PAGE_TOKEN_MAX_BYTES + 2];
    static const char *const rows[] = {NULL, "", "a b", "a\"", "a\n", longest};
    struct viewers w;
    struct asker_arg me = {&w};

    memset(longest, 'a', sizeof(longest) - 1);
    viewers_init(&w);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        check(&me, rows[i]);
        expect_seen(&w, i + 1, &me, 401, NULL);
    }
    assert_int_equal(w.kube.n, 0);
    viewers_release(&w);
}

UNIT_TEST(failures_are_503_and_not_remembered)
{
    static const char *const denied =
        "{\"kind\":\"Status\",\"reason\":\"Forbidden\",\"message\":\"no\"}";
    struct viewers w;
    struct asker_arg me = {&w};
    size_t n = 0;

    viewers_init(&w);
    check(&me, "t");
    answer_none(&w, -ETIMEDOUT, "https://api: timed out");
    expect_seen(&w, ++n, &me, 503, NULL);
    assert_non_null(strstr(logged, "cause=\"HTTP 0: https://api: timed out\""));
    *logged = '\0';
    check(&me, "t");
    answer_http(&w, 403, denied);
    expect_seen(&w, ++n, &me, 503,
                "the operator's ClusterRole lacks create on tokenreviews of "
                "authentication.k8s.io");
    assert_string_equal(logged, ""); /* within a minute of the last one */
    now_ns += 60 * NS_PER_S;
    for (int http = 400; http < 600; http += 29) {
        check(&me, "t");
        answer_http(&w, http, "{}");
        expect_seen(&w, ++n, &me, 503, NULL);
    }
    check(&me, "t");
    answer_http(&w, 201, "no JSON");
    expect_seen(&w, ++n, &me, 503,
                "the API server's answer to a review cannot be read");
    check(&me, "t");
    answer_owner(&w, "jane", "hvd-page");
    answer_http(&w, 403, denied);
    expect_seen(&w, ++n, &me, 503,
                "the operator's ClusterRole lacks create on subjectaccessreviews of "
                "authorization.k8s.io");
    check(&me, "t"); /* the owner is known, the right is asked for again */
    answer_right(&w, true);
    expect_seen(&w, ++n, &me, 200, "");
    viewers_release(&w);
}

UNIT_TEST(a_user_of_too_many_groups_is_refused_with_the_cause)
{
    static char text[PAGE_OWNER_MAX_BYTES + 400];
    static char group[PAGE_OWNER_MAX_BYTES + 1];
    struct viewers w;
    struct asker_arg me = {&w};

    memset(group, 'g', sizeof(group) - 1);
    (void)snprintf(text, sizeof(text),
                   "{\"status\":{\"authenticated\":true,\"audiences\":[\"hvd-page\"],"
                   "\"user\":{\"username\":\"jane\",\"groups\":[\"%s\"]}}}",
                   group);
    viewers_init(&w);
    check(&me, "t");
    answer_http(&w, 201, text);
    expect_seen(&w, 1, &me, 503, "the user's name and groups are too long to be kept");
    viewers_release(&w);
}

/* --- many at once ----------------------------------------------------------------- */

UNIT_TEST(equal_checks_share_one_request)
{
    struct viewers w;
    struct asker_arg me[3] = {{&w}, {&w}, {&w}};
    struct page_right other = list_team;

    viewers_init(&w);
    check(&me[0], "t");
    check(&me[1], "t");
    other.verb = "get";
    page_access_check(w.a, "t", &other, viewers_seen, &me[2]);
    assert_int_equal(n_open(&w), 1);
    answer_owner(&w, "jane", "hvd-page");
    assert_int_equal(n_open(&w), 2); /* two rights */
    answer_right(&w, true);
    expect_seen(&w, 2, &me[1], 200, "");
    assert_ptr_equal(w.seen[0].arg, &me[0]);
    answer_right(&w, false);
    expect_seen(&w, 3, &me[2], 403,
                "user jane may not get horovodjobs in namespace team");
    viewers_release(&w);
}

static void token_of(char *buf, size_t size, const char *prefix, unsigned i)
{
    (void)snprintf(buf, size, "%s%u", prefix, i);
}

UNIT_TEST(at_most_four_reviews_are_sent_at_once)
{
    enum { N = 20 };
    struct viewers w;
    struct asker_arg me = {&w};
    char token[16];

    viewers_init(&w);
    for (unsigned i = 0; i < N; i++) {
        token_of(token, sizeof(token), "t", i);
        check(&me, token);
        assert_in_range(n_open(&w), 1, 4);
    }
    for (unsigned i = 0; i < N; i++) { /* in order; each frees a place for the next */
        token_of(token, sizeof(token), "\"t", i);
        assert_int_equal(n_open(&w), N - i < 4 ? N - i : 4);
        assert_non_null(strstr(next_body(&w), token));
        answer_none(&w, -EIO, "no");
    }
    assert_int_equal(w.n, N);
    viewers_release(&w);
}

UNIT_TEST(who_is_known_goes_first_and_locks_no_one_out)
{
    enum { N = 16 };
    struct viewers w;
    struct asker_arg me = {&w}, jane = {&w};
    size_t n = 0, first = 0;

    viewers_init(&w);
    check(&jane, "t-jane");
    answer_owner(&w, "jane", "hvd-page");
    answer_right(&w, true);
    for (unsigned i = 0; i < 4; i++) { /* in flight; then all wait */
        char token[16];

        token_of(token, sizeof(token), "t", i);
        check(&me, token);
    }
    check(&me, "t-new");
    check(&me, "t-newer");
    for (unsigned i = 0; i < N; i++) {
        char ns[16];
        struct page_right right = list_team;

        token_of(ns, sizeof(ns), "n", i);
        right.ns = ns;
        page_access_check(w.a, "t-jane", &right, viewers_seen, &jane);
    }
    while (n_open(&w) > 0) {
        bool is_new = strstr(next_body(&w), "t-new") != NULL;

        first = is_new && !first ? n : first;
        n += w.kube.sent[w.kube.first].kind == KUBE_ACCESS_REVIEW;
        answer_none(&w, -EIO, "no");
    }
    assert_int_equal(n, N);
    assert_in_range(first, 1, 3);
    viewers_release(&w);
}

UNIT_TEST(reviews_have_a_rate_and_respect_a_pause)
{
    enum { BURST = 100 };
    struct viewers w;
    struct asker_arg me = {&w};
    char token[16];

    viewers_init(&w);
    for (unsigned i = 0; i < BURST + 2; i++) {
        token_of(token, sizeof(token), "t", i);
        check(&me, token);
        if (i < BURST)
            answer_none(&w, -EIO, "no");
    }
    assert_int_equal(w.kube.n, BURST);
    assert_int_equal(page_access_next_ns(w.a), now_ns + 10 * NS_PER_MS);
    w.kube.paused_ns = now_ns + 3 * NS_PER_S;
    assert_int_equal(page_access_next_ns(w.a), w.kube.paused_ns);
    page_access_tick(w.a, w.kube.paused_ns - 1);
    assert_int_equal(w.kube.n, BURST);
    page_access_tick(w.a, w.kube.paused_ns);
    assert_int_equal(w.kube.n, BURST + 2);
    assert_int_equal(page_access_next_ns(w.a), UINT64_MAX);
    viewers_release(&w);
}

UNIT_TEST(a_flood_of_tokens_gets_429_and_viewers_who_are_known_do_not)
{
    struct viewers w;
    struct asker_arg me = {&w}, jane = {&w};
    char token[16];

    viewers_init(&w);
    check(&jane, "t-jane");
    answer_owner(&w, "jane", "hvd-page");
    answer_right(&w, true);
    now_ns += KEEP_NS;
    w.n = 0;
    for (unsigned i = 0; i < 400; i++) {
        token_of(token, sizeof(token), "junk", i);
        check(&me, token);
    }
    assert_int_equal(w.n, 400 - PAGE_UNKNOWN_BURST); /* of which none is sent later */
    for (size_t i = 0; i < w.n; i++)
        assert_int_equal(w.seen[i].http, 429);
    w.n = 0;
    check(&jane, "t-jane"); /* she is too old in the cache, but not unknown */
    assert_int_equal(w.n, 0);
    for (size_t i = 0; i < 4;
         i++) /* that were sent already: she is before all others */
        answer_invalid(&w);
    answer_owner(&w, "jane", "hvd-page");
    for (size_t i = 0; i < 3; i++)
        answer_invalid(&w);
    answer_right(&w, true);
    expect_seen(&w, w.n, &jane, 200, "");
    viewers_release(&w);
}

UNIT_TEST(new_tokens_wait_in_512_checks_and_known_ones_in_1024)
{
    struct viewers w;
    struct asker_arg me = {&w}, jane = {&w};

    viewers_init(&w);
    check(&jane, "t-jane");
    answer_owner(&w, "jane", "hvd-page");
    answer_right(&w, true);
    now_ns += KEEP_NS;
    w.n = 0;
    for (unsigned i = 0; i < 512; i++)
        check(&me, "t");
    check(&me, "one-more");
    expect_seen(&w, 1, &me, 429, "too many checks wait: try again in a few seconds");
    while (n_open(&w) < 2) /* known */
        check(&jane, "t-jane");
    for (unsigned i = 513; i < 1024; i++)
        check(&jane, "t-jane");
    assert_int_equal(w.n, 1);
    check(&jane, "t-jane");
    expect_seen(&w, 2, &jane, 429, NULL);
    assert_int_equal(n_open(&w), 2);
    viewers_release(&w);
}

/* --- cancelling ------------------------------------------------------------------- */

UNIT_TEST(a_cancelled_check_is_not_called_back_and_its_answer_is_kept)
{
    struct viewers w;
    struct asker_arg me[2] = {{&w}, {&w}};

    viewers_init(&w);
    check(&me[0], "t");
    page_access_cancel(w.a, &me[0]);
    answer_owner(&w, "jane", "hvd-page");
    assert_int_equal(n_open(&w), 0);
    check(&me[1], "t");
    assert_int_equal(w.kube.sent[w.kube.first].kind, KUBE_ACCESS_REVIEW);
    page_access_cancel(w.a, &me[0]);
    for (unsigned i = 0; i < 300; i++) { /* they do not count as waiting any more */
        check(&me[0], "t");
        page_access_cancel(w.a, &me[0]);
    }
    answer_right(&w, true);
    expect_seen(&w, 1, &me[1], 200, "");
    viewers_release(&w);
}

UNIT_TEST(a_review_that_nobody_awaits_is_not_sent)
{
    struct viewers w;
    struct asker_arg me[6] = {{&w}, {&w}, {&w}, {&w}, {&w}, {&w}};
    char token[16];

    viewers_init(&w);
    for (unsigned i = 0; i < 6; i++) {
        token_of(token, sizeof(token), "t", i);
        check(&me[i], token);
    }
    page_access_cancel(w.a, &me[4]);
    while (n_open(&w) > 0)
        answer_none(&w, -EIO, "no");
    assert_int_equal(w.kube.n, 5);
    assert_int_equal(w.n, 5);
    viewers_release(&w);
}

static void cancel_others(struct viewers *w, void *arg)
{
    struct asker_arg *me = arg;

    page_access_cancel(w->a, me + 1);
    w->react = NULL;
    check(me, "another");
}

UNIT_TEST(a_callback_may_cancel_and_check)
{
    struct viewers w;
    struct asker_arg me[3] = {{&w}, {&w}, {&w}};

    viewers_init(&w);
    for (unsigned i = 0; i < 3; i++)
        check(&me[i], "t");
    w.react = cancel_others;
    answer_none(&w, -EIO, "no");
    expect_seen(&w, 2, &me[2], 503, NULL);
    assert_non_null(strstr(next_body(&w), "another"));
    answer_invalid(&w);
    answer_invalid(&w);
    expect_seen(&w, 3, &me[0], 401, NULL);
    viewers_release(&w);
}

/* --- memory ----------------------------------------------------------------------- */

static int sign_in(void *arg)
{
    struct viewers *w = arg;
    struct asker_arg me = {w};
    int http, rc;

    memset(w, 0, sizeof(*w));
    rc = page_access_new(&w->kube, KEEP_NS, &w->a);
    if (rc < 0)
        return rc;
    check(&me, "t");
    for (unsigned i = 0; n_open(w) > 0; i++) {
        if (w->kube.sent[w->kube.first].kind == KUBE_ACCESS_REVIEW)
            answer_right(w, false);
        else if (i == 0)
            answer_invalid(w);
        else
            answer_owner(w, "jane", "x");
    }
    http = w->seen[0].http;
    if (w->n == 1 && http == 403) { /* and once more from the cache */
        check(&me, "t");
        http = w->seen[1].http;
    }
    viewers_release(w);
    assert_in_range(w->n, 1, 2);
    assert_true(http == 403 || http == 503);
    return http == 403 ? 0 : -ENOMEM;
}

UNIT_TEST(without_memory_a_check_ends_with_503)
{
    struct viewers w;

    now_ns = 1000 * NS_PER_S;
    torture(sign_in, &w);
}

UNIT_MAIN(NULL, NULL)
