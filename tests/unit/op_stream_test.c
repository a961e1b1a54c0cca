/* SPDX-License-Identifier: Apache-2.0 */
/* Lines out of chunks, URL paths, and what an answer means. */
#include "tests/unit/unit.h"

#include "operator/kube/answer.h"
#include "operator/kube/path.h"
#include "operator/kube/stream.h"
#include "runtime/base/mem.h"

static int take_line(void *arg, const char *line, size_t n)
{
    struct strbuf *b = arg;

    strbuf_putc(b, '<');
    strbuf_add(b, line, n);
    strbuf_putc(b, '>');
    return n == 4 && memcmp(line, "stop", 4) == 0 ? -ECANCELED : 0;
}

UNIT_TEST(every_way_to_cut_gives_the_same_lines)
{
    static const char text[] = "{\"a\":1}\n\n{\"b\":2}\nlast";
    size_t n = sizeof(text) - 1;

    for (size_t i = 0; i <= n; i++) {
        for (size_t j = i; j <= n; j++) {
            CLEANUP(strbuf_release) struct strbuf got;
            struct stream s;

            strbuf_init(&got, 1024);
            stream_init(&s, 64);
            assert_int_equal(stream_feed(&s, text, i, take_line, &got), 0);
            assert_int_equal(stream_feed(&s, text + i, j - i, take_line, &got), 0);
            assert_int_equal(stream_feed(&s, text + j, n - j, take_line, &got), 0);
            assert_string_equal(strbuf_str(&got), "<{\"a\":1}><{\"b\":2}>");
            stream_release(&s);
        }
    }
}

UNIT_TEST(a_line_beyond_the_bound_is_an_error)
{
    CLEANUP(strbuf_release) struct strbuf got;
    struct stream s;

    strbuf_init(&got, 1024);
    stream_init(&s, 8);
    assert_int_equal(stream_feed(&s, "12345678\n", 9, take_line, &got), 0);
    assert_int_equal(stream_feed(&s, "123456789\n", 10, take_line, &got), -E2BIG);
    stream_clear(&s);
    assert_int_equal(stream_feed(&s, "12345", 5, take_line, &got), 0);
    assert_int_equal(stream_feed(&s, "67890", 5, take_line, &got), -E2BIG);
    stream_clear(&s);
    assert_int_equal(stream_feed(&s, "stop\nmore\n", 10, take_line, &got), -ECANCELED);
    assert_string_equal(strbuf_str(&got), "<12345678><stop>");
    stream_release(&s);
}

UNIT_TEST(paths_are_escaped)
{
    CLEANUP(strbuf_release) struct strbuf b;

    strbuf_init(&b, 1024);
    kube_path(&b, KUBE_POD, "ns", "demo-worker-0", NULL);
    assert_string_equal(strbuf_str(&b), "/api/v1/namespaces/ns/pods/demo-worker-0");
    strbuf_clear(&b);
    kube_path(&b, KUBE_JOB, NULL, NULL, NULL);
    assert_string_equal(strbuf_str(&b), "/apis/ringmaster.dev/v1beta1/horovodjobs");
    kube_query(&b, "labelSelector", "a.b/c=d e");
    kube_query(&b, "absent", NULL);
    kube_query(&b, "limit", "5");
    assert_string_equal(strbuf_str(&b), "/apis/ringmaster.dev/v1beta1/horovodjobs?"
                                        "labelSelector=a.b%2Fc%3Dd%20e&limit=5");
    strbuf_clear(&b);
    kube_path(&b, KUBE_JOB, "../../secrets", "..", "status");
    assert_string_equal(strbuf_str(&b),
                        "/apis/ringmaster.dev/v1beta1/namespaces/%2E.%2F%2E.%2Fsecrets/"
                        "horovodjobs/%2E%2E/status");
    strbuf_clear(&b);
    kube_path(&b, KUBE_TOKEN_REVIEW, NULL, NULL, NULL);
    kube_path(&b, KUBE_ACCESS_REVIEW, NULL, NULL, NULL);
    assert_string_equal(strbuf_str(&b), "/apis/authentication.k8s.io/v1/tokenreviews"
                                        "/apis/authorization.k8s.io/v1/"
                                        "subjectaccessreviews");
}

UNIT_TEST(an_answer_has_one_meaning)
{
    static const struct {
        int http;
        enum answer_class cls;
        const char *body, *says;
    } t[] = {
        {200, ANSWER_OK, "{}", ""},
        {201, ANSWER_OK, "{}", ""},
        {409, ANSWER_EXISTS, "{\"reason\":\"AlreadyExists\",\"message\":\"m\"}", "m"},
        {409, ANSWER_CONFLICT, "{\"reason\":\"Conflict\",\"message\":\"m\"}", "m"},
        {409, ANSWER_CONFLICT, "", "HTTP 409"},
        {404, ANSWER_NOT_FOUND, "page not found", "HTTP 404"},
        {410, ANSWER_GONE, "{\"message\":\"too old\"}", "too old"},
        {422, ANSWER_INVALID, "{\"message\":\"spec.x: bad\"}", "spec.x: bad"},
        {400, ANSWER_INVALID, "{\"message\":\"strict\"}", "strict"},
        {400, ANSWER_FORBIDDEN,
         "{\"message\":\"admission webhook \\\"a.b\\\" denied the request: no\"}",
         "denied the request: no"},
        {401, ANSWER_FORBIDDEN, "{\"message\":\"Unauthorized\"}", "Unauthorized"},
        {403, ANSWER_FORBIDDEN, "{\"message\":\"exceeded quota\"}", "exceeded quota"},
        {429, ANSWER_THROTTLED, "{\"details\":{\"retryAfterSeconds\":3}}", "HTTP 429"},
        {500, ANSWER_UNAVAILABLE, "[", "HTTP 500"},
        {302, ANSWER_UNAVAILABLE, "", "HTTP 302"},
        {0, ANSWER_UNAVAILABLE, "", "no route"},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct http_reply r = {
            .status = t[i].http, .body = t[i].body, .n = strlen(t[i].body)};
        struct kube_answer a;

        (void)err_set(&r.err, -EIO, "no route to host");
        answer_read(&r, &a);
        assert_int_equal(a.cls, t[i].cls);
        if (!strstr(a.message, t[i].says))
            fail_msg("HTTP %d says \"%s\"", t[i].http, a.message);
        if (t[i].http == 429)
            assert_int_equal(a.retry_after_s, 3);
    }
}

UNIT_MAIN(NULL, NULL)
