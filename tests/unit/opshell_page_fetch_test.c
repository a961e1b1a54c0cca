/* SPDX-License-Identifier: Apache-2.0 */
/* What the status page fetches from the API server and from agents: which requests it
 * sends, what it makes of the answers, and what viewers cost. */
#include "tests/unit/unit.h"

#include "tests/unit/opshell_world.h"

struct viewer {
    int n, http;
    char *body;
};

static void on_body(void *arg, int http, const char *body, size_t n)
{
    struct viewer *v = arg;

    v->n++;
    v->http = http;
    mem_free(v->body);
    v->body = mem_strndup(body, n);
    assert_int_equal(strlen(v->body), n);
}

static void viewer_ask(struct shell_world *w,
                       struct viewer *v,
                       enum page_fetch_what what,
                       int64_t rank)
{
    const struct page_query q = {
        .what = what, .key = "ns/train", .rank = rank, .tail = 2};

    page_fetch_start(w->fetch, &q, on_body, v);
}

static void viewer_wait(struct shell_world *w, const struct viewer *v)
{
    uint64_t deadline_ns = clock_now_ns() + WORLD_NS;

    while (v->n == 0 && clock_now_ns() < deadline_ns)
        world_turn(w, deadline_ns);
    assert_int_equal(v->n, 1);
}

static void check_answer(struct shell_world *w,
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

static int no_agent(void *arg, const struct live_query *q, struct strbuf *body)
{
    (void)arg;
    (void)q;
    (void)body;
    return EIO;
}

static int no_api(void *arg, const char *path, struct strbuf *body)
{
    (void)arg;
    (void)path;
    (void)body;
    return 404;
}

static int api_status(struct strbuf *body, int http, const char *message)
{
    strbuf_printf(body, "{\"kind\":\"Status\",\"reason\":\"x\",\"message\":\"%s\"}",
                  message);
    return http;
}

/* --- the job ---------------------------------------------------------------------- */

static int a_job(void *arg, const char *path, struct strbuf *body)
{
    (void)arg;
    (void)path;
    strbuf_puts(body, "{\"metadata\":{\"name\":\"train\"}}");
    return 200;
}

UNIT_TEST(a_job_that_is_not_kept_costs_one_request_for_many_viewers)
{
    struct viewer v[50] = {{0}};
    struct shell_world w;

    world_begin(&w, a_job, no_agent);
    world_put_job(&w, "Running");
    for (size_t i = 0; i < ARRAY_LEN(v); i++)
        viewer_ask(&w, &v[i], PAGE_JOB, 0);
    for (size_t i = 0; i < ARRAY_LEN(v); i++) {
        viewer_wait(&w, &v[i]);
        assert_int_equal(v[i].http, 200);
        assert_string_equal(v[i].body, "{\"metadata\":{\"name\":\"train\"}}");
        mem_free(v[i].body);
    }
    assert_int_equal(world_n_paths(&w), 1);
    assert_string_equal(
        w.path[0], "/apis/ringmaster.dev/v1beta1/namespaces/ns/horovodjobs/train json");
    world_end(&w);
}

/* --- Events ----------------------------------------------------------------------- */

#define EVENT(name, uid, reason)                                                       \
    "{\"metadata\":{\"uid\":\"" uid                                                    \
    "\"},\"involvedObject\":{\"kind\":\"Pod\",\"name\":\"" name                        \
    "\"},\"reason\":\"" reason "\"}"
#define SHOWN(reason)                                                                  \
    "{\"time\":\"\",\"type\":\"\",\"reason\":\"" reason                                \
    "\",\"message\":\"\",\"object\":\"Pod/train-worker-0\",\"count\":1}"

static int few_events(void *arg, const char *path, struct strbuf *body)
{
    (void)arg;
    (void)path;
    strbuf_puts(body, "{\"metadata\":{},\"items\":[" EVENT(
                          "train-worker-0", "a", "A") "," EVENT("other-worker-0", "b",
                                                                "B") "]}");
    return 200;
}

UNIT_TEST(events_of_a_usual_namespace_cost_one_request_for_many_viewers)
{
    struct viewer v[200] = {{0}};
    struct shell_world w;

    world_begin(&w, few_events, no_agent);
    world_put_job(&w, "Running");
    for (size_t i = 0; i < ARRAY_LEN(v); i++)
        viewer_ask(&w, &v[i], PAGE_EVENTS, 0);
    for (size_t i = 0; i < ARRAY_LEN(v); i++) {
        viewer_wait(&w, &v[i]);
        assert_int_equal(v[i].http, 200);
        assert_string_equal(v[i].body, "{\"events\":[" SHOWN("A") "]}");
        mem_free(v[i].body);
    }
    assert_int_equal(world_n_paths(&w), 1);
    assert_string_equal(w.path[0], "/api/v1/namespaces/ns/events?limit=250 json");
    world_end(&w);
}

static int many_events(void *arg, const char *path, struct strbuf *body)
{
    bool is_name = strstr(path, "involvedObject.name%3Dtrain&") != NULL;
    bool is_warning = strstr(path, "type%3DWarning") != NULL;

    (void)arg;
    strbuf_printf(body, "{\"metadata\":{\"continue\":\"next\"},\"items\":[%s]}",
                  is_name      ? EVENT("train-worker-0", "b", "B")
                  : is_warning ? EVENT("train-worker-0", "c", "C")
                               : EVENT("train-worker-0", "a", "A"));
    return 200;
}

UNIT_TEST(events_of_a_large_namespace_are_those_that_matter)
{
    static const char *const selectors[] = {"", "involvedObject.name%3Dtrain&",
                                            "type%3DWarning", "continue=next"};
    struct shell_world w;

    world_begin(&w, many_events, no_agent);
    world_put_job(&w, "Running");
    check_answer(&w, PAGE_EVENTS, 0, 200,
                 "{\"events\":[" SHOWN("A") "," SHOWN("B") "," SHOWN(
                     "C") "],\"truncated\":true}");
    assert_int_equal(world_n_paths(&w), 6);
    for (size_t i = 0; i < ARRAY_LEN(selectors); i++)
        assert_non_null(strstr(w.path[i], selectors[i]));
    world_end(&w);
}

static int expired_events(void *arg, const char *path, struct strbuf *body)
{
    if (strstr(path, "continue="))
        return api_status(body, 410, "too old");
    return many_events(arg, path, body);
}

UNIT_TEST(a_list_that_expires_ends_with_what_is_known)
{
    struct shell_world w;

    world_begin(&w, expired_events, no_agent);
    world_put_job(&w, "Running");
    check_answer(&w, PAGE_EVENTS, 0, 200,
                 "{\"events\":[" SHOWN("A") "," SHOWN("B") "," SHOWN(
                     "C") "],\"truncated\":true}");
    assert_int_equal(world_n_paths(&w), 4);
    world_end(&w);
}

static int denied(void *arg, const char *path, struct strbuf *body)
{
    (void)arg;
    (void)path;
    return api_status(body, 403, "no right");
}

static int garbage(void *arg, const char *path, struct strbuf *body)
{
    (void)arg;
    (void)path;
    strbuf_puts(body, "[7");
    return 200;
}

static int silence(void *arg, const char *path, struct strbuf *body)
{
    (void)arg;
    (void)path;
    (void)body;
    return 0;
}

UNIT_TEST(failures_of_the_api_server_become_sentences)
{
    static const struct {
        world_api_fn api;
        const char *body;
    } rows[] = {
        {denied, "{\"error\":\"events: no right\"}"},
        {garbage, "{\"error\":\"events: the API server's answer cannot be read\"}"},
        {silence, "{\"error\":\"events: the API server did not answer\"}"},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct shell_world w;

        world_begin(&w, rows[i].api, no_agent);
        world_put_job(&w, "Running");
        check_answer(&w, PAGE_EVENTS, 0, 502, rows[i].body);
        world_end(&w);
    }
}

UNIT_TEST(an_unknown_job_is_not_found_without_a_request)
{
    struct shell_world w;

    world_begin(&w, no_api, no_agent);
    for (int what = PAGE_EVENTS; what <= PAGE_LOG; what++)
        check_answer(&w, (enum page_fetch_what)what, -1, 404,
                     "{\"error\":\"no such job\"}");
    assert_int_equal(world_n_paths(&w), 0);
    world_end(&w);
}

/* --- logs ------------------------------------------------------------------------- */

static int log_of_two(void *arg, const char *path, struct strbuf *body)
{
    (void)arg;
    if (!strstr(path, "/log?"))
        return api_status(body, 404, "not here");
    strbuf_puts(body, "hello\n[2]<stdout>:a\n[3]<stdout>:b\n[2]<stdout>:\033[1m\xff\n"
                      "[2]<stderr>:c\n");
    return 200;
}

UNIT_TEST(a_rank_has_its_lines_of_its_pods_log)
{
    struct shell_world w;

    world_begin(&w, log_of_two, no_agent);
    world_put_job(&w, "Running");
    check_answer(&w, PAGE_LOG, 2, 200,
                 "{\"pod\":\"train-worker-1\",\"container\":\"main\",\"text\":"
                 "\"\\\\x1b[1m\\\\xff\\nc\\n\"}");
    assert_int_equal(world_n_paths(&w), 1);
    assert_string_equal(w.path[0],
                        "/api/v1/namespaces/ns/pods/train-worker-1/log?container=main&"
                        "tailLines=8&limitBytes=1048576 text");
    check_answer(&w, PAGE_LOG, -1, 200,
                 "{\"pod\":\"train-worker-0\",\"container\":\"main\",\"text\":"
                 "\"[2]<stdout>:\\\\x1b[1m\\\\xff\\n[2]<stderr>:c\\n\"}");
    assert_non_null(
        strstr(w.path[1], "train-worker-0/log?container=main&tailLines=2&"));
    check_answer(&w, PAGE_LOG, 4, 404,
                 "{\"error\":\"rank: 4 is too large; the job has ranks 0 to 3\"}");
    world_end(&w);
}

static int job_and_log(void *arg, const char *path, struct strbuf *body)
{
    if (strstr(path, "/log?"))
        return log_of_two(arg, path, body);
    strbuf_puts(
        body,
        "{\"metadata\":{\"name\":\"train\",\"namespace\":\"ns\",\"uid\":\"uid-1\"},"
        "\"spec\":{\"slotsPerWorker\":2,\"replicaSpecs\":{\"Worker\":{\"replicas\":2,"
        "\"template\":{\"spec\":{\"containers\":[{\"name\":\"first\"}]}}}}}}");
    return 200;
}

UNIT_TEST(the_container_of_a_finished_job_is_read_first)
{
    struct shell_world w;

    world_begin(&w, job_and_log, no_agent);
    world_put_job(&w, "Succeeded");
    check_answer(
        &w, PAGE_LOG, 3, 200,
        "{\"pod\":\"train-worker-1\",\"container\":\"first\",\"text\":\"b\\n\"}");
    assert_int_equal(world_n_paths(&w), 2);
    assert_string_equal(
        w.path[0], "/apis/ringmaster.dev/v1beta1/namespaces/ns/horovodjobs/train json");
    world_end(&w);
}

static int log_waits(void *arg, const char *path, struct strbuf *body)
{
    (void)arg;
    (void)path;
    return api_status(body, 400, "container main is waiting to start");
}

UNIT_TEST(a_log_that_does_not_exist_is_not_found)
{
    struct shell_world w;

    world_begin(&w, log_waits, no_agent);
    world_put_job(&w, "Running");
    check_answer(&w, PAGE_LOG, 0, 404,
                 "{\"error\":\"log: container main is waiting to start\"}");
    world_end(&w);
}

static int long_lines(void *arg, const char *path, struct strbuf *body)
{
    uint32_t n = (uint32_t)strtoul(strstr(path, "tailLines=") + 10, NULL, 10);

    (void)arg;
    for (uint32_t i = 0; i < n && body->n < 1u << 20; i++) { /* as the kubelet */
        size_t left = (1u << 20) - body->n;

        for (size_t k = 0; k + 10 < 400000 && k < left; k++)
            strbuf_putc(body, 'x');
        if (left >= 400000)
            strbuf_printf(body, " line %3u\n", 1000 - n + i);
    }
    return 200;
}

UNIT_TEST(the_newest_lines_of_a_log_are_shown_though_lines_are_long)
{
    struct viewer v = {0};
    struct shell_world w;

    world_begin(&w, long_lines, no_agent);
    world_put_job(&w, "Running");
    page_fetch_start(w.fetch, &(struct page_query){PAGE_LOG, "ns/train", -1, 100},
                     on_body, &v);
    viewer_wait(&w, &v);
    assert_int_equal(v.http, 200);
    assert_non_null(strstr(v.body, " line 999\\n\"}"));
    assert_int_equal(world_n_paths(&w), 2);
    mem_free(v.body);
    world_end(&w);
}

/* --- agents ----------------------------------------------------------------------- */

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
        "{\"error\":\"no agent can be asked: worker 0 does not run, or the job has "
        "no agents\"}");
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
    assert_string_equal(ended.body,
                        "{\"error\":\"worker 0 has ended or was replaced\"}");
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

/* --- what viewers cost ------------------------------------------------------------ */

UNIT_TEST(few_requests_are_open_at_the_api_server)
{
    struct viewer v[20] = {{0}};
    struct shell_world w;
    uint64_t deadline_ns = clock_now_ns() + WORLD_NS;
    unsigned n = 0;

    world_begin(&w, log_of_two, no_agent);
    world_put_job(&w, "Running");
    for (size_t i = 0; i < ARRAY_LEN(v); i++) {
        const struct page_query q = {PAGE_LOG, "ns/train", 0, (uint32_t)i + 1};

        page_fetch_start(w.fetch, &q, on_body, &v[i]);
    }
    page_fetch_tick(w.fetch, clock_now_ns());
    assert_true(page_fetch_next_ns(w.fetch)
                > clock_now_ns()); /* not before an answer */
    while (n < ARRAY_LEN(v) && clock_now_ns() < deadline_ns) {
        world_turn(&w, deadline_ns);
        n = 0;
        for (size_t i = 0; i < ARRAY_LEN(v); i++)
            n += (unsigned)v[i].n;
    }
    for (size_t i = 0; i < ARRAY_LEN(v); i++) {
        assert_int_equal(v[i].n, 1);
        assert_int_equal(v[i].http, 200);
        mem_free(v[i].body);
    }
    /* the 15 at once, then 5 a second */
    assert_true(deadline_ns - WORLD_NS + 800 * NS_PER_MS <= clock_now_ns());
    world_end(&w);
}

UNIT_TEST(a_query_ends_though_the_api_server_is_not_reached)
{
    struct viewer v = {0};
    struct shell_world w;

    world_begin(&w, few_events, no_agent);
    world_put_job(&w, "Running");
    viewer_ask(&w, &v, PAGE_EVENTS, 0);
    page_fetch_tick(w.fetch, clock_now_ns()); /* it is in the client's queue */
    page_fetch_tick(w.fetch, clock_now_ns() + 21 * NS_PER_S);
    assert_int_equal(v.n, 1);
    assert_int_equal(v.http, 504);
    while (world_n_paths(&w) == 0)
        world_turn(&w, clock_now_ns() + NS_PER_S); /* the late answer does no harm */
    assert_int_equal(v.n, 1);
    mem_free(v.body);
    world_end(&w);
}

UNIT_MAIN(NULL, NULL)
