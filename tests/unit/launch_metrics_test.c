/* SPDX-License-Identifier: Apache-2.0 */
/* The launcher's /metrics over real sockets, of pages as ranks write them. */
#include <fcntl.h>
#include <poll.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/contract/stats_page.h"
#include "runtime/launch/core/answer.h"
#include "runtime/launch/metrics.h"
#include "tests/unit/launch_fixture.h"

enum { MAX_PAGES = 10000, PAGE_TEXT_BYTES = 4000 }; /* of a full page, at least */

static char dir[] = "/tmp/hvd-metrics-XXXXXX";

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    static const char *const names[] = {"rank.1.tmp", "rank.x", "token",
                                        "trainer-token"};
    char path[64];

    (void)state;
    for (int i = 0; i < MAX_PAGES; i++) {
        (void)snprintf(path, sizeof(path), "%s/rank.%d", dir, i);
        (void)unlink(path);
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        (void)unlink(path);
    }
    return rmdir(dir);
}

static void write_file(const char *name, const void *p, size_t n)
{
    char path[64];
    struct err e = ERR_INIT;

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    if (fd_write_file(path, p, n, 0644, &e) < 0)
        fail_msg("%s", e.text);
}

static void write_page(const char *name, uint32_t rank, uint64_t batches)
{
    struct stats_page p = {.magic = STATS_MAGIC,
                           .version = STATS_VERSION,
                           .n_words = STATS_N_WORDS,
                           .rank = rank,
                           .size = 11};

    atomic_store(&p.words[STATS_BATCHES], batches);
    write_file(name, &p, sizeof(p));
}

static int http_dial(uint16_t port)
{
    struct err e = ERR_INIT;
    int fd;

    if (tcp_connect("127.0.0.1", port, clock_now_ns() + 60 * NS_PER_S, false, &fd, &e)
        < 0)
        fail_msg("%s", e.text);
    return fd;
}

/* Reads until the server closes. */
static const char *rest_of(int fd)
{
    static char text[64 << 20];
    uint64_t deadline = clock_now_ns() + 60 * NS_PER_S;
    size_t n = 0;

    for (;;) {
        ssize_t k = read(fd, text + n, sizeof(text) - 1 - n);

        if (k == 0 || (k < 0 && errno == ECONNRESET))
            break;
        if (k < 0)
            assert_true(fd_wait(fd, POLLIN, deadline) > 0);
        n += k > 0 ? (size_t)k : 0;
    }
    text[n] = 0;
    (void)close(fd);
    return text;
}

/* Sends n bytes, NULs included. */
static const char *http_query_bytes(uint16_t port, const char *p, size_t n)
{
    int fd = http_dial(port);

    assert_int_equal(fd_write_full(fd, p, n, clock_now_ns() + 60 * NS_PER_S), 0);
    return rest_of(fd);
}

static const char *http_query(uint16_t port, const char *request)
{
    return http_query_bytes(port, request, strlen(request));
}

static struct agent_metrics *metrics_start_here(void)
{
    struct agent_metrics *m;
    struct err e = ERR_INIT;

    if (metrics_start(&(struct metrics_config){.dir = dir, .has_metrics = true}, &m, &e)
        < 0)
        fail_msg("%s", e.text);
    return m;
}

UNIT_TEST(all_ranks_are_shown_in_order)
{
    struct agent_metrics *m = metrics_start_here();
    const char *text, *a, *b, *c;
    unsigned long length;

    text = http_query(metrics_port(m), "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_int_equal(strncmp(text, "HTTP/1.1 200 OK\r\n", 17), 0);
    assert_null(strstr(text, "{rank=")); /* no rank yet */
    write_page("rank.10", 10, 7);
    write_page("rank.0", 0, 5);
    write_page("rank.2", 2, 6);
    for (uint32_t i = 20; i < 32; i++) { /* whatever order the folder gives */
        char name[16];

        (void)snprintf(name, sizeof(name), "rank.%u", 51 - i);
        write_page(name, 51 - i, 9);
    }
    text = http_query(metrics_port(m), "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    a = strstr(text, "hvd_batches_total{rank=\"0\"} 5\n");
    b = strstr(text, "hvd_batches_total{rank=\"2\"} 6\n");
    c = strstr(text, "hvd_batches_total{rank=\"10\"} 7\n");
    assert_true(a && b && c && a < b && b < c);
    for (uint32_t i = 20; i < 32; i++) {
        char line[64];

        (void)snprintf(line, sizeof(line), "hvd_batches_total{rank=\"%u\"} 9\n", i);
        b = strstr(c, line);
        assert_non_null(b);
        c = b;
    }
    assert_non_null(strstr(text, "Content-Type: text/plain; version=0.0.4"));
    assert_int_equal(
        sscanf(strstr(text, "Content-Length:"), "Content-Length: %lu", &length), 1);
    assert_int_equal(strlen(strstr(text, "\r\n\r\n") + 4), length);
    write_page("rank.2", 2, 600);
    text = http_query(metrics_port(m), "GET /metrics?x=1 HTTP/1.0\r\n\r\n");
    assert_non_null(strstr(text, "hvd_batches_total{rank=\"2\"} 600\n"));
    metrics_stop(m);
}

UNIT_TEST(what_is_no_page_is_left_out)
{
    static const char junk[2000] = "junk";
    struct agent_metrics *m = metrics_start_here();
    const char *text;

    write_page("rank.0", 0, 5);
    write_file("rank.7", junk, sizeof(junk));
    write_file("rank.2", junk, 10); /* cut short */
    write_page("rank.x", 77, 1);
    write_page("rank.1.tmp", 78, 1);
    write_file("token", "secret", 6);
    text = http_query(metrics_port(m), "GET /metrics HTTP/1.1\r\n\r\n");
    assert_non_null(strstr(text, "{rank=\"0\"}"));
    assert_null(strstr(text, "{rank=\"7"));
    assert_null(strstr(text, "{rank=\"2\""));
    assert_null(strstr(text, "secret"));
    metrics_stop(m);
}

UNIT_TEST(other_requests_are_refused)
{
    struct agent_metrics *m = metrics_start_here();

    assert_non_null(
        strstr(http_query(metrics_port(m), "GET / HTTP/1.1\r\n\r\n"), " 404 "));
    assert_non_null(
        strstr(http_query(metrics_port(m), "GET /metricsx HTTP/1.1\r\n\r\n"), " 404 "));
    assert_non_null(
        strstr(http_query(metrics_port(m), "GET /../token HTTP/1.1\r\n\r\n"), " 404 "));
    assert_non_null(
        strstr(http_query(metrics_port(m), "POST /metrics HTTP/1.1\r\n\r\n"), " 405 "));
    metrics_stop(m);
}

UNIT_TEST(a_nul_in_a_request_does_not_hide_its_end)
{
    static const char request[] = "GET /metrics HTTP/1.1\r\nHost: \0x\r\n\r\n";
    struct agent_metrics *m = metrics_start_here();

    assert_non_null(
        strstr(http_query_bytes(metrics_port(m), request, sizeof(request) - 1),
               " 200 OK\r\n"));
    metrics_stop(m);
}

UNIT_TEST(a_silent_client_delays_no_other_and_is_dropped)
{
    static char flood[8192];
    struct agent_metrics *m = metrics_start_here();
    int idle = http_dial(metrics_port(m));
    struct pollfd p = {.fd = idle, .events = POLLIN};

    write_page("rank.0", 0, 5);
    assert_non_null(strstr(http_query(metrics_port(m), "GET /metrics HTTP/1.1\r\n\r\n"),
                           "hvd_batches_total{rank=\"0\"} 5\n"));
    assert_int_equal(poll(&p, 1, 0), 0); /* it is still open */
    assert_string_equal(rest_of(idle), "");
    memset(flood, 'x', sizeof(flood)); /* no end of a request */
    idle = http_dial(metrics_port(m));
    (void)send(idle, flood, sizeof(flood), MSG_NOSIGNAL);
    (void)close(idle);
    assert_non_null(
        strstr(http_query(metrics_port(m), "GET /metrics HTTP/1.1\r\n\r\n"), " 200 "));
    metrics_stop(m);
}

static bool batches_are_shown(const char *text, unsigned n)
{
    char line[64];

    (void)snprintf(line, sizeof(line), "hvd_batches_total{rank=\"0\"} %u\n", n);
    return strstr(text, line) != NULL;
}

/* So many pages that their answer does not fit in the buffer of a sending socket. */
static int pages_needed(void)
{
    FILE *f = fopen("/proc/sys/net/ipv4/tcp_wmem", "r");
    long least, usual, most = 4 << 20;

    if (f) {
        if (fscanf(f, "%ld %ld %ld", &least, &usual, &most) != 3)
            most = 4 << 20;
        (void)fclose(f);
    }
    assert_true(most / PAGE_TEXT_BYTES + 300 < MAX_PAGES);
    return (int)(most / PAGE_TEXT_BYTES) + 300;
}

static void write_many_pages(void)
{
    char first[64], path[64];
    struct stats_page full = {.magic = STATS_MAGIC,
                              .version = STATS_VERSION,
                              .n_words = STATS_N_WORDS,
                              .rank = 1,
                              .size = 11};

    for (size_t i = 0; i < STATS_N_WORDS; i++)
        atomic_store(&full.words[i], UINT64_MAX);
    write_file("rank.1", &full, sizeof(full));
    (void)snprintf(first, sizeof(first), "%s/rank.1", dir);
    for (int i = pages_needed(); i > 1; i--) {
        (void)snprintf(path, sizeof(path), "%s/rank.%d", dir, i);
        (void)unlink(path); /* of another test */
        assert_int_equal(link(first, path), 0);
    }
}

static const char scrape[] = "GET /metrics HTTP/1.1\r\n\r\n";

/* Asks, and returns when the server has begun to answer. */
static void http_ask(int fd)
{
    assert_int_equal(write(fd, scrape, sizeof(scrape) - 1), sizeof(scrape) - 1);
    assert_true(fd_wait(fd, POLLIN, clock_now_ns() + 60 * NS_PER_S) > 0);
}

static int http_dial_small(uint16_t port)
{
    struct sockaddr_in sa = {.sin_family = AF_INET,
                             .sin_port = htons(port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), small = 65536;

    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    return fd;
}

/* A client that does not read keeps its answer in memory. False: it took too long to say
 * anything. */
static bool a_slow_answer_is_shared(uint16_t port)
{
    int slow = http_dial_small(port), other = http_dial(port);
    uint64_t began_ns;
    bool is_quick, is_old;

    write_page("rank.0", 0, 5);
    began_ns = clock_now_ns();
    http_ask(slow);
    write_page("rank.0", 0, 6);
    http_ask(other);
    is_quick = clock_now_ns() - began_ns < ANSWER_SHARE_NS;
    is_old = batches_are_shown(rest_of(other), 5);
    if (is_quick)
        assert_true(is_old);
    (void)close(slow);
    while (batches_are_shown(http_query(port, scrape), 5))
        assert_true(clock_now_ns() - began_ns < 60 * NS_PER_S);
    return is_quick;
}

UNIT_TEST(an_answer_that_is_being_sent_is_shared)
{
    struct agent_metrics *m = metrics_start_here();
    int tries = 5;

    write_many_pages();
    while (!a_slow_answer_is_shared(metrics_port(m)) && --tries > 0)
        ;
    if (tries == 0)
        print_message("too slow to see whether answers are shared\n");
    metrics_stop(m);
}

/* --- reports of trainers --- */

static const char *
trainer_post(uint16_t port, const char *path, const char *token, const char *body)
{
    char request[1024];

    (void)snprintf(request, sizeof(request),
                   "POST %s HTTP/1.1\r\nAuthorization: Bearer %s\r\n"
                   "Content-Length: %zu\r\n\r\n%s",
                   path, token, strlen(body), body);
    return http_query(port, request);
}

UNIT_TEST(a_trainer_reports_beside_metrics)
{
    static const char body[] = "{\"trainerStatus\": {\"progressPercentage\": 50}}";
    struct metrics_config c = {.dir = dir};
    struct option_var vars[TRAINER_VARS];
    AUTOFREE char *token = NULL;
    struct agent_metrics *m;
    struct live_progress p;
    struct err e = ERR_INIT;
    uint16_t port;

    assert_int_equal(trainer_new(dir, &c.trainer, &e), 0);
    assert_int_equal(metrics_start(&c, &m, &e), 0);
    port = metrics_trainer_port(m);
    trainer_variables(c.trainer, port, vars);
    assert_int_equal(fd_read_file(vars[1].value, 100, &token, NULL, &e), 0);
    assert_non_null(strstr(trainer_post(port, "/trainer-status", "x", body), " 401 "));
    assert_non_null(strstr(trainer_post(port, "/metrics", token, body), " 404 "));
    assert_non_null(
        strstr(trainer_post(port, "/trainer-status", token, "[]"),
               "400 Bad Request\r\nContent-Type: text/plain; version=0.0.4; "
               "charset=utf-8\r\nContent-Length: 31\r\nConnection: close\r\n\r\n"
               "trainerStatus is not an object\n"));
    assert_non_null(strstr(http_query(port, "POST / HTTP/1.1\r\n\r\n"), " 411 "));
    assert_non_null(strstr(http_query(port, "PUT / HTTP/1.1\r\n\r\n"), " 405 "));
    assert_false(trainer_progress_get(c.trainer, &p));
    assert_non_null(strstr(trainer_post(port, "/trainer-status", token, body),
                           "HTTP/1.1 200 OK\r\n"));
    assert_true(trainer_progress_get(c.trainer, &p));
    assert_int_equal(p.step, 50);
    metrics_stop(m);
    trainer_free(c.trainer);
}

UNIT_TEST(a_port_in_use_is_an_error)
{
    struct metrics_config c = {.dir = dir, .has_metrics = true};
    struct agent_metrics *m = metrics_start_here(), *other = NULL;
    struct err e = ERR_INIT;

    c.port = metrics_port(m);
    assert_true(metrics_start(&c, &other, &e) < 0);
    assert_null(other);
    assert_true(e.text[0] != 0);
    metrics_stop(m);
    metrics_stop(NULL);
}

UNIT_MAIN(make_dir, remove_dir)
