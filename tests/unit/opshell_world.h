/* SPDX-License-Identifier: Apache-2.0 */
/* An API server and an agent in threads of the test, for the operator's shell. Both answer
 * what the test's functions return, one connection after the other. */
#ifndef TESTS_UNIT_OPSHELL_WORLD_H
#define TESTS_UNIT_OPSHELL_WORLD_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "operator/ask.h"
#include "operator/doc/base64.h"
#include "operator/doc/json.h"
#include "operator/options.h"
#include "operator/page/page_fetch.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/wire/bytes.h"
#include "runtime/wire/frame.h"
#include "tests/unit/wire_server.h"

#define WORLD_NS      (60 * NS_PER_S)
#define WORLD_MAX     64u
#define WORLD_REQUEST 4096u

/* Appends the body; returns the HTTP status. */
typedef int (*world_api_fn)(void *arg, const char *path, struct strbuf *body);
/* Appends the answer; returns its status. */
typedef int (*world_agent_fn)(void *arg,
                              const struct live_query *q,
                              struct strbuf *body);

struct shell_world {
    struct controller op;
    struct kube_config config;
    struct page_fetch *fetch;
    struct token token;
    int api_fd, agent_fd;
    uint16_t agent_port;
    pthread_t api_thread, agent_thread;
    _Atomic bool is_over;
    _Atomic unsigned n_asked;
    world_api_fn api;
    world_agent_fn agent;
    pthread_mutex_t lock; /* of the next two */
    char path[WORLD_MAX][WORLD_REQUEST];
    unsigned n_paths;
};

static inline unsigned world_n_paths(struct shell_world *w)
{
    unsigned n;

    pthread_mutex_lock(&w->lock);
    n = w->n_paths;
    pthread_mutex_unlock(&w->lock);
    return n;
}

/* --- the API server --------------------------------------------------------------- */

static inline bool world_read_request(int fd, char request[WORLD_REQUEST])
{
    size_t n = 0;

    while (n + 1 < WORLD_REQUEST) {
        if (fd_read_full(fd, request + n, 1, clock_now_ns() + WORLD_NS) < 0)
            return false;
        request[++n] = '\0';
        if (n >= 4 && strcmp(request + n - 4, "\r\n\r\n") == 0)
            return true;
    }
    return false;
}

static inline void world_serve_api(struct shell_world *w, int fd)
{
    CLEANUP(strbuf_release) struct strbuf body = {0}, out = {0};
    char request[WORLD_REQUEST], *path, *end;
    int http;

    if (!world_read_request(fd, request))
        return;
    path = strchr(request, ' ') + 1;
    end = strchr(path, ' ');
    *end = '\0';
    pthread_mutex_lock(&w->lock);
    if (w->n_paths < WORLD_MAX)
        (void)snprintf(w->path[w->n_paths++], WORLD_REQUEST, "%s %s", path,
                       strstr(end + 1, "Accept: */*") ? "text" : "json");
    pthread_mutex_unlock(&w->lock);
    strbuf_init(&body, 16u << 20);
    strbuf_init(&out, 17u << 20);
    http = w->api(w, path, &body);
    if (http == 0) /* no answer */
        return;
    strbuf_printf(&out,
                  "HTTP/1.1 %d X\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
                  http, body.n);
    strbuf_add(&out, strbuf_str(&body), body.n);
    (void)fd_write_full(fd, strbuf_str(&out), out.n, clock_now_ns() + WORLD_NS);
}

static inline void *world_run_api(void *arg)
{
    struct shell_world *w = arg;

    while (!w->is_over) {
        int fd = -1;

        (void)fd_wait(w->api_fd, POLLIN, clock_now_ns() + WORLD_NS);
        if (!w->is_over && tcp_accept(w->api_fd, &fd) == 0)
            world_serve_api(w, fd);
        fd_close(&fd);
    }
    return NULL;
}

/* --- the agent -------------------------------------------------------------------- */

static inline void world_serve_agent(void *arg, const struct admitted *m)
{
    struct shell_world *w = arg;
    CLEANUP(strbuf_release) struct strbuf body = {0}, out = {0};
    struct live_query q;
    struct frame_conn c;
    struct frame f;
    int status;

    frame_init(&c);
    frame_open(&c, m->fd, &m->session, 1024);
    if (frame_recv_until(&c, clock_now_ns() + WORLD_NS, &f) == 1 && f.n == 10) {
        q = (struct live_query){.kind = (enum live_query_kind)bytes_load(f.p, 2),
                                .first = bytes_load_u32(f.p + 2),
                                .max = bytes_load_u32(f.p + 6)};
        strbuf_init(&body, QUERY_ANSWER_MAX_BYTES);
        strbuf_init(&out, QUERY_ANSWER_MAX_BYTES);
        status = w->agent(w, &q, &body);
        bytes_put_u32(&out, (uint32_t)status);
        strbuf_add(&out, strbuf_str(&body), body.n);
        w->n_asked++;
        (void)frame_send(&c, LIVE_MESSAGE_ANSWER, out.p, out.n);
        (void)frame_flush_until(&c, clock_now_ns() + WORLD_NS);
    }
    frame_release(&c);
}

static inline void *world_run_agent(void *arg)
{
    struct accept_kind kind = {
        .name = "test", .mine = ROLE_AGENT_HUB, .theirs = ROLE_READER};
    struct shell_world *w = arg;
    struct auth_id id = {.token = &w->token, .job_id = "ns/train/uid-1"};
    struct acceptor a = {0};
    int rc = acceptor_open(&a, &kind, NULL);

    if (rc == 0)
        rc = door_listen(a.door, w->agent_fd, false, NULL);
    while (rc == 0 && !w->is_over) {
        (void)fd_wait(door_fd(a.door), POLLIN, door_next_ns(a.door));
        acceptor_serve(&a, &id, world_serve_agent, w);
    }
    acceptor_close(&a);
    return NULL;
}

/* --- begin and end ---------------------------------------------------------------- */

/* state: of the job ns/train; "" : none. It has 2 workers with 2 slots. */
static inline void world_put_job(struct shell_world *w, const char *state)
{
    char text[1000], key[STORE_KEY_SIZE];
    struct arena a;
    struct node *o;

    (void)snprintf(
        text, sizeof(text),
        "{\"metadata\":{\"name\":\"train\",\"namespace\":\"ns\",\"uid\":\"uid-1\","
        "\"resourceVersion\":\"1\",\"generation\":1},\"spec\":{\"slotsPerWorker\":2,"
        "\"replicaSpecs\":{\"Worker\":{\"replicas\":2,\"template\":{\"spec\":{"
        "\"containers\":"
        "[{\"name\":\"main\",\"image\":\"i\",\"command\":[\"x\"]}]}}}}},\"status\":{"
        "\"conditions\":"
        "[{\"type\":\"%s\",\"status\":\"True\"}]}}",
        state);
    arena_init(&a, 1u << 20);
    assert_int_equal(json_read(&a, text, strlen(text), &o, NULL), 0);
    assert_int_equal(store_put_job(w->op.store, KUBE_JOB, o, key, NULL), 1);
    assert_string_equal(key, "ns/train");
    arena_release(&a);
}

static inline void world_put_agent(struct shell_world *w, uint16_t port)
{
    const struct job_meta job = {.ns = "ns", .name = "train", .uid = "uid-1"};
    const struct ask_target target = {.address = port ? "127.0.0.1" : NULL,
                                      .port = port,
                                      .run = "pod-uid",
                                      .secret = "train-token",
                                      .job_id = "ns/train/uid-1"};

    ask_set(w->op.ask, "ns/train", &job, &target);
}

static inline void
world_begin(struct shell_world *w, world_api_fn api, world_agent_fn agent)
{
    const struct kube_options options = {.qps = 1000, .burst = 1000};
    const struct operator_options o = {.qps = 1000, .progress_ms = 3600000};
    struct err err = ERR_INIT;
    char url[64];
    uint16_t port;

    memset(w, 0, sizeof(*w));
    memset(w->token.key, 0xab, sizeof(w->token.key));
    w->api = api;
    w->agent = agent;
    pthread_mutex_init(&w->lock, NULL);
    assert_int_equal(tcp_listen("127.0.0.1", 0, &w->api_fd, &port, &err), 0);
    assert_int_equal(tcp_listen("127.0.0.1", 0, &w->agent_fd, &w->agent_port, &err), 0);
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u", port);
    assert_int_equal(kube_config_set_server(&w->config, url, &err), 0);
    w->op.store = store_new();
    assert_int_equal(kube_new(&w->config, &options, &w->op.kube, &err), 0);
    assert_int_equal(ask_new(&w->op, &o, &w->op.ask, &err), 0);
    assert_int_equal(page_fetch_new(&w->op, &w->fetch), 0);
    pthread_create(&w->api_thread, NULL, world_run_api, w);
    pthread_create(&w->agent_thread, NULL, world_run_agent, w);
}

static inline void world_end(struct shell_world *w)
{
    kube_free(w->op.kube);
    page_fetch_free(w->fetch);
    ask_free(w->op.ask);
    store_free(w->op.store);
    w->is_over = true;
    (void)shutdown(w->api_fd, SHUT_RD); /* wakes the threads */
    (void)shutdown(w->agent_fd, SHUT_RD);
    pthread_join(w->api_thread, NULL);
    pthread_join(w->agent_thread, NULL);
    fd_close(&w->api_fd);
    fd_close(&w->agent_fd);
    kube_config_release(&w->config);
    pthread_mutex_destroy(&w->lock);
}

/* One turn of the loop, at most until deadline_ns. */
static inline void world_turn(struct shell_world *w, uint64_t deadline_ns)
{
    struct pollfd fds[] = {{.fd = ask_fd(w->op.ask), .events = POLLIN}};
    uint64_t next;

    page_fetch_tick(w->fetch, clock_now_ns());
    kube_tick(w->op.kube, clock_now_ns());
    next = earlier_ns(page_fetch_next_ns(w->fetch), kube_next_ns(w->op.kube));
    next = earlier_ns(next, ask_next_ns(w->op.ask));
    assert_int_equal(
        http_run(kube_http(w->op.kube), earlier_ns(next, deadline_ns), fds, 1, NULL),
        0);
    ask_run(w->op.ask, clock_now_ns());
}

#endif
