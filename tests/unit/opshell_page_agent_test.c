/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks and stacks of the status page, as worker 0's agent answers them. */
#include "tests/unit/unit.h"

#include "tests/unit/opshell_viewer.h"

static int agent_of_600(void *arg, const struct live_query *q, struct strbuf *body)
{
    uint32_t n = q->first >= 600 ? 0 : 600 - q->first;

    (void)arg;
    if (q->kind == QUERY_STACKS) {
        strbuf_puts(body, "rank 0\n\t\033]0;\"main\"\n");
        return 0;
    }
    if (q->kind != QUERY_RANKS)
        return ENOSYS;
    n = n > q->max ? q->max : n;
    bytes_put_u32(body, n);
    for (uint32_t i = 0; i < n; i++) {
        CLEANUP(strbuf_release) struct strbuf one = {0};
        struct live_rank r;

        live_rank_init(&r);
        r.rank = q->first + i;
        strbuf_init(&one, LIVE_REPORT_MAX_BYTES);
        live_rank_pack(&r, &one);
        bytes_put_u32(body, (uint32_t)one.n);
        strbuf_add(body, one.p, one.n);
    }
    return 0;
}

static int secret_api(void *arg, const char *path, struct strbuf *body)
{
    const struct shell_world *w = arg;
    char hex[2 * sizeof(w->token.key) + 1], text[BASE64_SIZE(sizeof(hex))];

    if (!strstr(path, "/secrets/train-token"))
        return 404;
    hex_encode(w->token.key, sizeof(w->token.key), hex);
    base64_encode(hex, sizeof(hex) - 1, text);
    strbuf_printf(
        body,
        "{\"metadata\":{\"ownerReferences\":[{\"uid\":\"uid-1\",\"controller\":true}]},"
        "\"data\":{\"token\":\"%s\"}}",
        text);
    return 200;
}

static char *ranks_json(uint32_t n, const char *end)
{
    struct strbuf out;
    char *text;

    strbuf_init(&out, 4u << 20);
    strbuf_puts(&out, "{\"ranks\":[");
    for (uint32_t i = 0; i < n; i++) {
        struct live_rank r;

        live_rank_init(&r);
        r.rank = i;
        strbuf_puts(&out, i > 0 ? "," : "");
        live_rank_json(&r, &out);
    }
    strbuf_puts(&out, end);
    text = strbuf_take(&out);
    strbuf_release(&out);
    return text;
}

UNIT_TEST(ranks_and_stacks_are_asked_of_the_agent)
{
    AUTOFREE char *ranks = ranks_json(600, "]}");
    struct operator_metrics before;
    struct shell_world w;

    world_begin(&w, secret_api, agent_of_600);
    before = w.op.metrics;
    world_put_job(&w, "Running");
    world_put_agent(&w, w.agent_port);
    check_answer(&w, PAGE_RANKS, 0, 200, ranks);
    assert_int_equal(w.n_asked, 2); /* pages */
    check_answer(&w, PAGE_STACKS, 0, 200,
                 "{\"text\":\"rank 0\\n\\t\\\\x1b]0;\\\"main\\\"\\n\"}");
    assert_memory_equal(&before, &w.op.metrics, sizeof(before));
    world_end(&w);
}

static int agent_of_many(void *arg, const struct live_query *q, struct strbuf *body)
{
    struct live_query first = *q;
    int rc;

    first.first = 0; /* there are always more */
    if (q->max == 1)
        assert_int_equal(q->first, 4096);
    rc = agent_of_600(arg, &first, body);
    return rc;
}

UNIT_TEST(ranks_beyond_the_bound_are_left_out_and_that_is_said)
{
    struct viewer v = {0};
    struct shell_world w;

    world_begin(&w, secret_api, agent_of_many);
    world_put_job(&w, "Running");
    world_put_agent(&w, w.agent_port);
    viewer_ask(&w, &v, PAGE_RANKS, 0);
    viewer_wait(&w, &v);
    assert_int_equal(v.http, 200);
    assert_string_equal(v.body + strlen(v.body) - 20, "}],\"truncated\":true}");
    assert_int_equal(w.n_asked, 9);
    mem_free(v.body);
    world_end(&w);
}

static int bad_agent(void *arg, const struct live_query *q, struct strbuf *body)
{
    (void)arg;
    strbuf_puts(body, q->kind == QUERY_RANKS ? "\5" : "out of \"order\"");
    return q->kind == QUERY_RANKS ? 0 : EPERM;
}

UNIT_TEST(an_agent_that_cannot_be_asked_becomes_a_sentence)
{
    CLEANUP(fd_close) int fd = -1;
    struct viewer v = {0};
    struct shell_world w;
    uint16_t port;

    world_begin(&w, secret_api, bad_agent);
    world_put_job(&w, "Running");
    check_answer(
        &w, PAGE_STACKS, 0, 404,
        "{\"error\":\"no agent can be asked: its pod does not run, or the job has "
        "none\"}");
    world_put_agent(&w, w.agent_port);
    check_answer(&w, PAGE_RANKS, 0, 502, "{\"error\":\"the list of ranks is cut\"}");
    world_end(&w);
    world_begin(&w, secret_api, bad_agent);
    world_put_job(&w, "Running");
    world_put_agent(&w, w.agent_port);
    check_answer(&w, PAGE_STACKS, 0, 502, "{\"error\":\"out of \\\"order\\\"\"}");
    world_end(&w);
    world_begin(&w, secret_api, bad_agent);
    world_put_job(&w, "Running");
    assert_int_equal(tcp_hold(&fd, &port, NULL), 0);
    world_put_agent(&w, port);
    viewer_ask(&w, &v, PAGE_STACKS, 0);
    viewer_wait(&w, &v);
    assert_int_equal(v.http, 502);
    assert_non_null(strstr(v.body, "cannot connect to the agent"));
    mem_free(v.body);
    world_end(&w);
    world_begin(&w, denied, bad_agent);
    world_put_job(&w, "Running");
    world_put_agent(&w, w.agent_port);
    check_answer(&w, PAGE_STACKS, 0, 502, "{\"error\":\"no right\"}");
    world_end(&w);
}

UNIT_TEST(a_question_ends_with_its_job_and_with_the_leadership)
{
    struct viewer ended = {0}, deposed = {0}, cancelled = {0};
    struct shell_world w;

    world_begin(&w, secret_api, agent_of_600);
    world_put_job(&w, "Running");
    world_put_agent(&w, w.agent_port);
    viewer_ask(&w, &ended, PAGE_STACKS, 0);
    assert_int_equal(ended.n, 0);
    world_put_agent(&w, 0); /* worker 0 is gone */
    assert_int_equal(ended.n, 1);
    assert_int_equal(ended.http, 404);
    assert_string_equal(
        ended.body, "{\"error\":\"the pod that was asked has ended or was replaced\"}");
    world_put_agent(&w, w.agent_port);
    viewer_ask(&w, &deposed, PAGE_RANKS, 0);
    viewer_ask(&w, &cancelled, PAGE_RANKS, 0);
    page_fetch_cancel(w.fetch, &cancelled);
    ask_forget_all(w.op.ask);
    assert_int_equal(deposed.n, 1);
    assert_int_equal(deposed.http, 503);
    assert_string_equal(deposed.body, "{\"error\":\"this operator no longer leads\"}");
    assert_int_equal(cancelled.n, 0);
    mem_free(ended.body);
    mem_free(deposed.body);
    world_end(&w);
}

struct asked {
    int n, rc;
};

static void on_asked(void *arg, int rc, const void *p, size_t n, const char *why)
{
    struct asked *a = arg;

    (void)p;
    (void)n;
    (void)why;
    a->n++;
    a->rc = rc;
}

UNIT_TEST(few_questions_are_open_at_once)
{
    const struct live_query q = {.kind = QUERY_STACKS};
    struct asked a[9] = {{0}};
    struct shell_world w;
    uint64_t deadline_ns;

    world_begin(&w, secret_api, agent_of_600);
    world_put_job(&w, "Running");
    world_put_agent(&w, w.agent_port);
    for (size_t i = 0; i < ARRAY_LEN(a); i++)
        ask_query(w.op.ask, "ns/train", &q, on_asked, &a[i]);
    assert_int_equal(a[8].n, 1);
    assert_int_equal(a[8].rc, -EAGAIN);
    ask_query_cancel(w.op.ask, &a[3]);
    ask_query(w.op.ask, "ns/train", &q, on_asked, &a[8]); /* there is room again */
    assert_int_equal(a[8].n, 1);
    deadline_ns = clock_now_ns() + WORLD_NS;
    for (size_t i = 0; i < ARRAY_LEN(a); i++) {
        while (i != 3 && a[i].n < (i == 8 ? 2 : 1) && clock_now_ns() < deadline_ns)
            world_turn(&w, deadline_ns);
        assert_int_equal(a[i].n, i == 3 ? 0 : i == 8 ? 2 : 1);
        assert_int_equal(a[i].rc, 0);
    }
    world_end(&w);
}

UNIT_MAIN(NULL, NULL)
