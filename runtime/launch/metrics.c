/* SPDX-License-Identifier: Apache-2.0 */
/* A minimal HTTP server: one thread. Connections are strangers to the end (wire/door.h):
 * slow ones delay no other. Answers one request, then closes. Prometheus needs no
 * authentication and sees no secret; trainer.c has its own.
 *
 * Clients that read slowly share answers (core/answer.h); the door ends each connection
 * after DOOR_TOTAL_NS. Called by agent.c. */
#include "runtime/launch/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/addr.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "runtime/contract/contract.h"
#include "runtime/launch/core/answer.h"
#include "runtime/launch/core/scrape.h"
#include "runtime/launch/stats_dir.h"
#include "runtime/wire/door.h"

enum { REQUEST_MAX = 4096, MAX_SCRAPES = 64 };
static const size_t TEXT_MAX = 256u << 20;

struct agent_metrics {
    pthread_t thread;
    int listen_fd, trainer_fd, wake[2];
    struct door *door;
    uint16_t port, trainer_port;
    struct trainer *trainer;
    char dir[CONTRACT_PATH_MAX];
    _Atomic int64_t generation; /* -1: unknown. Relaxed: it publishes no other data */
    struct answers answers;     /* with counters */
};

static void metrics_put_generation(const struct agent_metrics *m, struct strbuf *out)
{
    int64_t generation = atomic_load_explicit(&m->generation, memory_order_relaxed);

    if (generation >= 0)
        strbuf_printf(out,
                      "# HELP hvd_agent_generation generation of the world that this "
                      "worker's ranks were started in last\n"
                      "# TYPE hvd_agent_generation gauge\n"
                      "hvd_agent_generation %lld\n",
                      (long long)generation);
}

/* --- HTTP --- */

struct scrape { /* a connection */
    struct agent_metrics *metrics;
    char request[POST_HEAD_MAX + POST_BODY_MAX]; /* REQUEST_MAX of another method */
    size_t n;                                    /* bytes of it */
    struct answer *answer;
    size_t n_sent;
};

/* NULL: memory is out; the next scrape may succeed. */
static struct answer *answer_new(const char *status, const struct strbuf *body)
{
    struct answer *a = mem_zalloc(sizeof(*a));

    if (!a)
        return NULL;
    strbuf_init(&a->text, TEXT_MAX + REQUEST_MAX);
    strbuf_printf(&a->text,
                  "HTTP/1.1 %s\r\nContent-Type: text/plain; version=0.0.4; "
                  "charset=utf-8\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
                  status, body->n);
    strbuf_add(&a->text, strbuf_str(body), body->n);
    if (strbuf_status(body) == 0 && strbuf_status(&a->text) == 0)
        return a;
    strbuf_release(&a->text);
    mem_free(a);
    return NULL;
}

static struct answer *metrics_answer_counters(struct agent_metrics *m)
{
    CLEANUP(strbuf_release) struct strbuf body = {0};
    uint64_t now_ns = clock_now_ns();
    struct answer *a = answers_find(&m->answers, now_ns);

    if (a)
        return a;
    strbuf_init(&body, TEXT_MAX);
    metrics_put_generation(m, &body);
    stats_dir_text(m->dir, &body);
    a = answer_new("200 OK", &body);
    if (a)
        answers_add(&m->answers, a, now_ns);
    return a;
}

static struct answer *answer_text(const char *status, const char *text)
{
    CLEANUP(strbuf_release) struct strbuf body = {0};

    strbuf_init(&body, REQUEST_MAX);
    strbuf_puts(&body, text);
    return answer_new(status, &body);
}

static struct answer *
metrics_answer_post(struct agent_metrics *m, const struct scrape *c, bool is_local)
{
    char text[300];
    struct post post;
    const char *status;

    (void)post_read(c->request, c->n, &post);
    status = trainer_answer(m->trainer, &post, is_local, text, sizeof(text));
    return answer_text(status, text);
}

static struct answer *
metrics_answer(struct agent_metrics *m, const struct scrape *c, const char *address)
{
    if (m->trainer && post_is_one(c->request, c->n))
        return metrics_answer_post(m, c, addr_is_loopback(address));
    switch (scrape_read(c->request, c->n)) {
    case SCRAPE_METRICS:
        return metrics_answer_counters(m);
    case SCRAPE_OTHER_PATH:
        return answer_text("404 Not Found", "only /metrics\n");
    case SCRAPE_PARTIAL:
    case SCRAPE_OTHER_METHOD:
        break;
    }
    return answer_text("405 Method Not Allowed", "only GET\n");
}

/* Reads up to the blank line that ends a request, or the end of a body. 1: it is
 * complete. */
static int metrics_read_request(struct scrape *c, struct stranger *s, struct err *err)
{
    ssize_t k = read(s->fd, c->request + c->n, sizeof(c->request) - c->n);
    struct post post;

    if (k < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    if (k == 0)
        return -EPIPE;
    s->has_sent = true;
    c->n += (size_t)k;
    if (c->metrics->trainer && post_is_one(c->request, c->n))
        return post_read(c->request, c->n, &post) != POST_PARTIAL;
    if (scrape_read(c->request, c->n) != SCRAPE_PARTIAL)
        return 1;
    return c->n < REQUEST_MAX
               ? 0
               : err_set(err, -EMSGSIZE, "its request has %d bytes or more",
                         REQUEST_MAX);
}

/* -EPIPE after all is sent: the door closes the connection. */
static int metrics_send_answer(struct scrape *c, struct stranger *s)
{
    const struct strbuf *text = &c->answer->text;

    while (c->n_sent < text->n) {
        ssize_t k = send(s->fd, strbuf_str(text) + c->n_sent, text->n - c->n_sent,
                         MSG_NOSIGNAL | MSG_DONTWAIT);

        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && errno == EAGAIN) {
            s->wants_out = true;
            return 0;
        }
        if (k < 0)
            return -errno;
        c->n_sent += (size_t)k;
    }
    return -EPIPE;
}

static int metrics_step(void *arg, struct stranger *s, struct err *err)
{
    struct scrape *c = s->data;

    c->metrics = arg;
    if (!c->answer) {
        int rc = metrics_read_request(c, s, err);

        if (rc <= 0)
            return rc;
        c->answer = metrics_answer(c->metrics, c, s->address);
        if (!c->answer)
            return -ENOMEM;
        answer_join(c->answer);
    }
    return metrics_send_answer(c, s);
}

static void metrics_release_scrape(struct stranger *s)
{
    const struct scrape *c = s->data;

    if (c->answer)
        answers_leave(&c->metrics->answers, c->answer);
}

static void *metrics_main(void *arg)
{
    struct agent_metrics *m = arg;
    struct pollfd fds[2] = {{.fd = m->wake[0], .events = POLLIN},
                            {.fd = door_fd(m->door), .events = POLLIN}};

    while (!(fds[0].revents & POLLIN)) {
        (void)poll(fds, 2, clock_left_ms(door_next_ns(m->door)));
        door_serve(m->door, m, clock_now_ns());
    }
    return NULL;
}

/* --- start and stop --- */

static int metrics_start_thread(struct agent_metrics *m, struct err *err)
{
    int rc = thread_start(&m->thread, metrics_main, m);

    return rc == 0 ? 0 : err_errno(err, rc, "cannot start the thread for metrics");
}

static void metrics_free(struct agent_metrics *m)
{
    door_close(m->door);
    fd_close(&m->listen_fd);
    fd_close(&m->trainer_fd);
    fd_close(&m->wake[0]);
    fd_close(&m->wake[1]);
    mem_free(m);
}

static int
metrics_listen(struct agent_metrics *m, const struct metrics_config *c, struct err *err)
{
    int rc = 0;

    if (c->has_metrics) {
        rc = tcp_listen("::", c->port, &m->listen_fd, &m->port, err);
        rc = rc < 0 ? rc : door_listen(m->door, m->listen_fd, false, err);
    }
    if (rc == 0 && c->trainer) {
        rc = tcp_listen("127.0.0.1", 0, &m->trainer_fd, &m->trainer_port, err);
        rc = rc < 0 ? rc : door_listen(m->door, m->trainer_fd, false, err);
    }
    return rc;
}

int metrics_start(const struct metrics_config *c,
                  struct agent_metrics **ret,
                  struct err *err)
{
    static const struct door_kind kind = {.name = "metrics",
                                          .data_bytes = sizeof(struct scrape),
                                          .max = MAX_SCRAPES,
                                          .step = metrics_step,
                                          .release = metrics_release_scrape};
    struct agent_metrics *m = mem_zalloc(sizeof(*m));
    int rc;

    if (!m)
        return err_set(err, -ENOMEM, "out of memory for metrics");
    m->listen_fd = m->trainer_fd = m->wake[0] = m->wake[1] = -1;
    m->trainer = c->trainer;
    atomic_init(&m->generation, -1);
    (void)snprintf(m->dir, sizeof(m->dir), "%s", c->dir);
    rc = door_open(&kind, &m->door, err);
    rc = rc < 0 ? rc : metrics_listen(m, c, err);
    if (rc == 0 && pipe2(m->wake, O_CLOEXEC) < 0)
        rc = err_errno(err, errno, "cannot make a pipe for metrics");
    rc = rc < 0 ? rc : metrics_start_thread(m, err);
    if (rc < 0)
        metrics_free(m);
    else
        *ret = m;
    return rc;
}

uint16_t metrics_port(const struct agent_metrics *m)
{
    return m->port;
}

uint16_t metrics_trainer_port(const struct agent_metrics *m)
{
    return m->trainer_port;
}

void metrics_set_generation(struct agent_metrics *m, uint32_t generation)
{
    if (m)
        atomic_store_explicit(&m->generation, generation, memory_order_relaxed);
}

void metrics_stop(struct agent_metrics *m)
{
    if (!m)
        return;
    (void)fd_write_full(m->wake[1], "x", 1, clock_now_ns() + NS_PER_S);
    (void)pthread_join(m->thread, NULL);
    metrics_free(m);
}
