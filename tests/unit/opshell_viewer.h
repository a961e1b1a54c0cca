/* SPDX-License-Identifier: Apache-2.0 */
/* A viewer of the status page, for tests of what it fetches. */
#ifndef TESTS_UNIT_OPSHELL_VIEWER_H
#define TESTS_UNIT_OPSHELL_VIEWER_H

#include "tests/unit/opshell_world.h"

struct viewer {
    int n, http;
    char *body;
};

static inline void on_body(void *arg, int http, const char *body, size_t n)
{
    struct viewer *v = arg;

    v->n++;
    v->http = http;
    mem_free(v->body);
    v->body = mem_strndup(body, n);
    assert_int_equal(strlen(v->body), n);
}

static inline void viewer_ask(struct shell_world *w,
                              struct viewer *v,
                              enum page_fetch_what what,
                              int64_t rank)
{
    const struct page_query q = {
        .what = what, .key = "ns/train", .rank = rank, .tail = 2};

    page_fetch_start(w->fetch, &q, on_body, v);
}

static inline void viewer_wait(struct shell_world *w, const struct viewer *v)
{
    uint64_t deadline_ns = clock_now_ns() + WORLD_NS;

    while (v->n == 0 && clock_now_ns() < deadline_ns)
        world_turn(w, deadline_ns);
    assert_int_equal(v->n, 1);
}

static inline void check_answer(struct shell_world *w,
                                enum page_fetch_what what,
                                int64_t rank,
                                int http,
                                const char *body)
{
    struct viewer v = {0};

    viewer_ask(w, &v, what, rank);
    viewer_wait(w, &v);
    assert_string_equal(v.body, body);
    assert_int_equal(v.http, http);
    mem_free(v.body);
}

static inline int no_agent(void *arg, const struct live_query *q, struct strbuf *body)
{
    (void)arg;
    (void)q;
    (void)body;
    return EIO;
}

static inline int no_api(void *arg, const char *path, struct strbuf *body)
{
    (void)arg;
    (void)path;
    (void)body;
    return 404;
}

static inline int api_status(struct strbuf *body, int http, const char *message)
{
    strbuf_printf(body, "{\"kind\":\"Status\",\"reason\":\"x\",\"message\":\"%s\"}",
                  message);
    return http;
}

static inline int denied(void *arg, const char *path, struct strbuf *body)
{
    (void)arg;
    (void)path;
    return api_status(body, 403, "no right");
}

#endif
