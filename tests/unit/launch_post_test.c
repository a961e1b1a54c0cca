/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP requests with a body, in the pieces in which they arrive. */
#include "tests/unit/unit.h"

#include "runtime/base/mem.h"
#include "runtime/base/strbuf.h"
#include "runtime/launch/core/post.h"

static enum post_state read_text(const char *text, struct post *ret)
{
    return post_read(text, strlen(text), ret);
}

UNIT_TEST(a_request_is_complete_with_its_body)
{
    static const char text[] =
        "POST /a?b HTTP/1.1\r\nHost: x\r\nauthorization:  bearer "
        "secret \r\nCONTENT-LENGTH:\t4 \r\n\r\nbody";
    struct post post;

    for (size_t n = 0; n < sizeof(text) - 1; n++)
        assert_int_equal(post_read(text, n, &post), POST_PARTIAL);
    assert_int_equal(read_text(text, &post), POST_COMPLETE);
    assert_int_equal(post.n_path, 4);
    assert_memory_equal(post.path, "/a?b", 4);
    assert_int_equal(post.n_bearer, 6);
    assert_memory_equal(post.bearer, "secret", 6);
    assert_int_equal(post.n_body, 4);
    assert_memory_equal(post.body, "body", 4);
    assert_int_equal(
        read_text("POST / HTTP/1.0\r\nContent-Length: 0\r\n\r\nmore", &post),
        POST_COMPLETE);
    assert_true(post.n_body == 0 && post.n_bearer == 0);
}

UNIT_TEST(what_is_no_request_is_refused)
{
    static const struct {
        const char *text, *status;
    } cases[] = {
        {"POST / HTTP/1.1\r\n\r\n", "411 Length Required"},
        {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
         "411 Length Required"},
        {"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\nx",
         "411 Length Required"},
        {"POST / HTTP/1.1\r\nContent-Length:\r\n\r\n", "400 Bad Request"},
        {"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", "400 Bad Request"},
        {"POST / HTTP/1.1\r\nContent-Length: 1a\r\n\r\n", "400 Bad Request"},
        {"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
         "400 Bad Request"},
        {"POST / HTTP/1.1\r\nContent-Length: 16385\r\n\r\n", "413 Content Too Large"},
        {"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999999\r\n\r\n",
         "413 Content Too Large"},
        {"POST /\r\nContent-Length: 1\r\n\r\nx", "400 Bad Request"},
        {"POST / SPDY/1\r\nContent-Length: 1\r\n\r\nx", "400 Bad Request"},
        {"POST \r\nContent-Length: 1\r\n\r\nx", "400 Bad Request"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct post post;

        assert_int_equal(read_text(cases[i].text, &post), POST_REFUSED);
        assert_string_equal(post.status, cases[i].status);
        assert_true(post.why && *post.why);
    }
}

UNIT_TEST(a_request_has_a_size)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};
    struct post post;

    strbuf_init(&b, 1 << 16);
    strbuf_puts(&b, "POST / HTTP/1.1\r\nX: ");
    while (b.n < POST_HEAD_MAX - 1)
        strbuf_puts(&b, "x");
    assert_int_equal(post_read(b.p, b.n, &post), POST_PARTIAL);
    strbuf_puts(&b, "x");
    assert_int_equal(post_read(b.p, b.n, &post), POST_REFUSED);
    assert_string_equal(post.status, "431 Request Header Fields Too Large");
    strbuf_clear(&b);
    strbuf_puts(&b, "POST / HTTP/1.1\r\nContent-Length: 16384\r\n\r\n");
    for (size_t n = 0; n < POST_BODY_MAX; n++) {
        assert_int_equal(post_read(b.p, b.n, &post), POST_PARTIAL);
        strbuf_puts(&b, "x");
    }
    assert_int_equal(post_read(b.p, b.n, &post), POST_COMPLETE);
    assert_int_equal(post.n_body, POST_BODY_MAX);
}

UNIT_MAIN(NULL, NULL)
