/* SPDX-License-Identifier: Apache-2.0 */
/* The listener of the status page: a turn of the operator's loop ends soon, whatever viewers
 * request. */
#include "tests/unit/unit.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "operator/page/page_http.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"

#define WAIT_NS (60 * NS_PER_S)
#define VIEWERS 6

struct desk {
    void (*open)(void *arg, struct page_call *c); /* NULL: on_open */
    unsigned n_opened, n_closed;
};

/* A request that takes long: longer than the calls of one turn together may. */
static void on_open(void *arg, struct page_call *c)
{
    uint64_t end_ns = clock_now_ns() + 60 * NS_PER_MS;
    struct desk *d = arg;

    while (clock_now_ns() < end_ns)
        continue;
    d->n_opened++;
    page_call_refuse(c, 404, c->path);
}

static void on_closed(void *arg, struct page_call *c)
{
    struct desk *d = arg;

    (void)c;
    d->n_closed++;
}

static struct page_http *desk_listen(struct desk *d, uint16_t *ret_port)
{
    const struct page_handler handler = {d->open ? d->open : on_open, on_closed, d};
    uint16_t port = (uint16_t)(20000 + getpid() % 10000);
    struct page_http *h = NULL;
    struct err err;

    for (int i = 0; i < 1000 && !h; i++) { /* the first one that is free */
        err = (struct err)ERR_INIT;
        (void)page_http_new("127.0.0.1", ++port, &handler, &h, &err);
    }
    assert_non_null(h);
    *ret_port = port;
    return h;
}

UNIT_TEST(a_turn_opens_few_slow_requests_and_none_is_lost)
{
    static const char request[] = "GET /x HTTP/1.1\r\nHost: h\r\n\r\n";
    uint64_t deadline_ns = clock_now_ns() + WAIT_NS;
    int fd[VIEWERS];
    struct desk d = {0};
    struct page_http *h;
    uint16_t port;
    char answer[16];

    h = desk_listen(&d, &port);
    for (int i = 0; i < VIEWERS; i++) {
        assert_int_equal(
            tcp_connect("127.0.0.1", port, deadline_ns, false, &fd[i], NULL), 0);
        assert_int_equal(fd_write_full(fd[i], request, strlen(request), deadline_ns),
                         0);
    }
    while (d.n_closed < VIEWERS && clock_now_ns() < deadline_ns) {
        unsigned before = d.n_opened;
        uint64_t now_ns = clock_now_ns(), next_ns = page_http_next_ns(h, now_ns);

        (void)fd_wait(page_http_fd(h), POLLIN,
                      next_ns < deadline_ns ? next_ns : deadline_ns);
        page_http_run(h, clock_now_ns());
        assert_true(d.n_opened - before <= 1);
    }
    assert_int_equal(d.n_opened, VIEWERS);
    for (int i = 0; i < VIEWERS; i++) {
        assert_int_equal(fd_read_full(fd[i], answer, 12, deadline_ns), 0);
        assert_memory_equal(answer, "HTTP/1.1 404", 12);
        fd_close(&fd[i]);
    }
    page_http_free(h);
    assert_int_equal(d.n_closed, VIEWERS);
}

/* What waits for its turn when the operator stops was not handled, so nothing is closed. */
UNIT_TEST(a_request_that_waits_for_its_turn_ends_with_the_listener)
{
    static const char request[] = "GET /x HTTP/1.1\r\nHost: h\r\n\r\n";
    uint64_t deadline_ns = clock_now_ns() + WAIT_NS;
    struct desk d = {0};
    struct page_http *h;
    int fd[VIEWERS];
    uint16_t port;

    h = desk_listen(&d, &port);
    for (int i = 0; i < VIEWERS; i++) {
        assert_int_equal(
            tcp_connect("127.0.0.1", port, deadline_ns, false, &fd[i], NULL), 0);
        assert_int_equal(fd_write_full(fd[i], request, strlen(request), deadline_ns),
                         0);
    }
    while (d.n_opened == 0 && clock_now_ns() < deadline_ns) {
        (void)fd_wait(page_http_fd(h), POLLIN, deadline_ns);
        page_http_run(h, clock_now_ns());
    }
    page_http_free(h);
    assert_int_equal(d.n_opened, d.n_closed);
    for (int i = 0; i < VIEWERS; i++)
        fd_close(&fd[i]);
}

/* libmicrohttpd has no memory for so many parameters, ends the connection, and does not
 * report the request as completed. A leak sanitizer sees what is left. */
UNIT_TEST(a_request_that_is_refused_by_the_library_leaves_nothing)
{
    uint64_t deadline_ns = clock_now_ns() + WAIT_NS;
    char request[1024] = "GET /x?", rest[64];
    struct desk d = {0};
    struct page_http *h;
    uint16_t port;
    ssize_t n;
    int fd;

    memset(request + strlen(request), '&', 900);
    strcat(request, " HTTP/1.1\r\nHost: h\r\n\r\n");
    h = desk_listen(&d, &port);
    assert_int_equal(tcp_connect("127.0.0.1", port, deadline_ns, false, &fd, NULL), 0);
    assert_int_equal(fd_write_full(fd, request, strlen(request), deadline_ns), 0);
    do {
        (void)fd_wait(page_http_fd(h), POLLIN, clock_now_ns() + 10 * NS_PER_MS);
        page_http_run(h, clock_now_ns());
        n = recv(fd, rest, sizeof(rest), 0);
    } while (n < 0 && errno == EAGAIN && clock_now_ns() < deadline_ns);
    assert_true(clock_now_ns() < deadline_ns);
    assert_int_equal(d.n_opened, 0);
    fd_close(&fd);
    page_http_free(h);
}

/* --- what is not read --------------------------------------------------------------- */

#define LARGE ((size_t)64 << 20)

static void on_open_large(void *arg, struct page_call *c)
{
    const struct page_answer a = {.status = 200};
    AUTOFREE char *zeroes = mem_zalloc(LARGE);
    struct desk *d = arg;
    struct page_text *t;

    assert_non_null(zeroes);
    t = page_text_new(zeroes, LARGE);
    assert_non_null(t);
    d->n_opened++;
    page_call_answer(c, &a, t);
    page_text_unref(t);
}

/* Sends a request, and reads the begin of the answer. */
static void
desk_request(struct page_http *h, uint16_t port, int *ret_fd, char answer[13])
{
    static const char request[] = "GET /x HTTP/1.1\r\nHost: h\r\n\r\n";
    uint64_t deadline_ns = clock_now_ns() + WAIT_NS;
    ssize_t n;

    assert_int_equal(tcp_connect("127.0.0.1", port, deadline_ns, false, ret_fd, NULL),
                     0);
    assert_int_equal(fd_write_full(*ret_fd, request, strlen(request), deadline_ns), 0);
    do {
        (void)fd_wait(page_http_fd(h), POLLIN, clock_now_ns() + 10 * NS_PER_MS);
        page_http_run(h, clock_now_ns());
        n = recv(*ret_fd, answer, 12, 0);
    } while (n < 0 && errno == EAGAIN && clock_now_ns() < deadline_ns);
    assert_int_equal(n, 12);
    answer[12] = '\0';
}

UNIT_TEST(answers_that_are_not_read_have_a_bound)
{
    uint64_t deadline_ns = clock_now_ns() + WAIT_NS;
    struct desk d = {.open = on_open_large};
    struct page_http *h;
    char answer[13];
    uint16_t port;
    int fd[5];

    h = desk_listen(&d, &port);
    for (int i = 0; i < 4; i++) {
        desk_request(h, port, &fd[i], answer);
        assert_string_equal(answer, i < 3 ? "HTTP/1.1 200" : "HTTP/1.1 503");
    }
    for (int i = 0; i < 3; i++)
        fd_close(&fd[i]);
    while (d.n_closed < 4 && clock_now_ns() < deadline_ns) {
        (void)fd_wait(page_http_fd(h), POLLIN, clock_now_ns() + 10 * NS_PER_MS);
        page_http_run(h, clock_now_ns());
    }
    desk_request(h, port, &fd[4], answer);
    assert_string_equal(answer, "HTTP/1.1 200");
    fd_close(&fd[3]);
    fd_close(&fd[4]);
    page_http_free(h);
}

UNIT_MAIN(NULL, NULL)
