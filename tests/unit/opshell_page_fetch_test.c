/* SPDX-License-Identifier: Apache-2.0 */
/* What the status page fetches from the API server: which requests it sends, what it makes
 * of the answers, and what viewers cost. */
#include "tests/unit/unit.h"

#include "tests/unit/opshell_viewer.h"

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
    /* then not before an answer, though the rate allows more */
    assert_true(page_fetch_next_ns(w.fetch) > clock_now_ns() + 5 * NS_PER_S);
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
