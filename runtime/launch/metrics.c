/* SPDX-License-Identifier: Apache-2.0 */
/* A minimal HTTP server for Prometheus: one thread. Connections are strangers to the end
 * (wire/door.h): slow ones delay no other. Answers one request, then closes.
 *
 * Pages are the files rank.N of a folder, which ranks map and write (observe/stats.c). They
 * are read, not mapped: a file that a rank truncates is then a short read and not a
 * SIGBUS in the process that is PID 1 of the pod. Files that are no valid page are
 * skipped. There is no authentication and no secret. Called by agent.c. */
#include "runtime/launch/metrics.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/base/parse.h"
#include "runtime/contract/contract.h"
#include "runtime/contract/stats_page.h"
#include "runtime/launch/core/scrape.h"
#include "runtime/wire/door.h"

enum { REQUEST_MAX = 4096, PAGES_MAX = 65536, MAX_SCRAPES = 64 };
static const size_t TEXT_MAX = 256u << 20;

struct agent_metrics {
    pthread_t thread;
    int listen_fd, wake[2];
    struct door *door;
    uint16_t port;
    char dir[CONTRACT_PATH_MAX];
    _Atomic int64_t generation; /* -1: unknown. Relaxed: it publishes no other data */
};

/* --- pages --- */

static struct stats_page *metrics_read_page(const char *path)
{
    CLEANUP(fd_close)
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    AUTOFREE struct stats_page *p = mem_zalloc(sizeof(*p));
    ssize_t n;

    if (fd < 0 || !p)
        return NULL;
    n = pread(fd, p, sizeof(*p), 0);
    if (n < 0 || stats_page_check(p, (size_t)n, NULL) < 0)
        return NULL;
    return TAKE(p);
}

static int page_compare_rank(const void *a, const void *b)
{
    const struct stats_page *const *x = a, *const *y = b;

    return (*x)->rank < (*y)->rank ? -1 : (*x)->rank > (*y)->rank;
}

static size_t metrics_read_pages(const char *dir, struct stats_page ***ret)
{
    DIR *d = opendir(dir);
    const struct dirent *entry;
    void *v = NULL;
    size_t n = 0, cap = 0;
    uint32_t rank;

    while (d && (entry = readdir(d)) != NULL) {
        char path[CONTRACT_PATH_MAX + 300];
        struct stats_page *p;

        if (strncmp(entry->d_name, "rank.", 5) != 0
            || parse_u32("rank", entry->d_name + 5, 0, UINT32_MAX, &rank, NULL) < 0)
            continue; /* a temporary or another file */
        (void)snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
        p = metrics_read_page(path);
        if (!p)
            continue;
        if (mem_grow(&v, n, &cap, sizeof(void *), PAGES_MAX) < 0) {
            mem_free(p);
            break;
        }
        ((struct stats_page **)v)[n++] = p;
    }
    if (d)
        (void)closedir(d);
    if (n > 0)
        qsort(v, n, sizeof(void *), page_compare_rank);
    *ret = v;
    return n;
}

static void metrics_put_pages(const char *dir, struct strbuf *out)
{
    struct stats_page **pages;
    size_t n = metrics_read_pages(dir, &pages);

    stats_page_text((const struct stats_page *const *)pages, n, out);
    for (size_t i = 0; i < n; i++)
        mem_free(pages[i]);
    mem_free(pages);
}

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
    char request[REQUEST_MAX];
    size_t n; /* bytes of it */
    bool has_answer;
    struct strbuf answer;
    size_t n_sent;
};

static void metrics_put_answer(const struct agent_metrics *m, struct scrape *c)
{
    CLEANUP(strbuf_release) struct strbuf body = {0};
    const char *status = "200 OK";

    strbuf_init(&body, TEXT_MAX);
    switch (scrape_read(c->request, c->n)) {
    case SCRAPE_PARTIAL:
    case SCRAPE_OTHER_METHOD:
        status = "405 Method Not Allowed";
        strbuf_puts(&body, "only GET\n");
        break;
    case SCRAPE_OTHER_PATH:
        status = "404 Not Found";
        strbuf_puts(&body, "only /metrics\n");
        break;
    case SCRAPE_METRICS:
        metrics_put_generation(m, &body);
        metrics_put_pages(m->dir, &body);
        break;
    }
    strbuf_init(&c->answer, TEXT_MAX + REQUEST_MAX);
    strbuf_printf(&c->answer,
                  "HTTP/1.1 %s\r\nContent-Type: text/plain; version=0.0.4; "
                  "charset=utf-8\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
                  status, body.n);
    strbuf_add(&c->answer, strbuf_str(&body), body.n);
    if (strbuf_status(&body) < 0 || strbuf_status(&c->answer) < 0)
        strbuf_clear(&c->answer); /* out of memory: the next scrape may succeed */
    c->has_answer = true;
}

/* Reads up to the blank line that ends a request. 1: it is complete. */
static int metrics_read_request(struct scrape *c, struct stranger *s, struct err *err)
{
    ssize_t k = read(s->fd, c->request + c->n, sizeof(c->request) - c->n);

    if (k < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    if (k == 0)
        return -EPIPE;
    s->has_sent = true;
    c->n += (size_t)k;
    if (scrape_read(c->request, c->n) != SCRAPE_PARTIAL)
        return 1;
    return c->n < sizeof(c->request)
               ? 0
               : err_set(err, -EMSGSIZE, "its request has %d bytes or more",
                         REQUEST_MAX);
}

/* -EPIPE after all is sent: the door closes the connection. */
static int metrics_send_answer(struct scrape *c, struct stranger *s)
{
    while (c->n_sent < c->answer.n) {
        ssize_t k = send(s->fd, strbuf_str(&c->answer) + c->n_sent,
                         c->answer.n - c->n_sent, MSG_NOSIGNAL | MSG_DONTWAIT);

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
    const struct agent_metrics *m = arg;
    struct scrape *c = s->data;

    if (!c->has_answer) {
        int rc = metrics_read_request(c, s, err);

        if (rc <= 0)
            return rc;
        metrics_put_answer(m, c);
    }
    return metrics_send_answer(c, s);
}

static void metrics_release_scrape(struct stranger *s)
{
    struct scrape *c = s->data;

    strbuf_release(&c->answer);
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
    sigset_t all, old;
    int rc;

    (void)sigfillset(&all);
    /* the main thread handles signals */
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(&m->thread, NULL, metrics_main, m);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc == 0 ? 0 : err_errno(err, rc, "cannot start the thread for metrics");
}

static void metrics_free(struct agent_metrics *m)
{
    door_close(m->door);
    fd_close(&m->listen_fd);
    fd_close(&m->wake[0]);
    fd_close(&m->wake[1]);
    mem_free(m);
}

int metrics_start(uint16_t port,
                  const char *dir,
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
    m->listen_fd = m->wake[0] = m->wake[1] = -1;
    atomic_init(&m->generation, -1);
    (void)snprintf(m->dir, sizeof(m->dir), "%s", dir);
    rc = tcp_listen("::", port, &m->listen_fd, &m->port, NULL);
    if (rc < 0) /* a host without IPv6 */
        rc = tcp_listen("0.0.0.0", port, &m->listen_fd, &m->port, err);
    if (rc == 0 && pipe2(m->wake, O_CLOEXEC) < 0)
        rc = err_errno(err, errno, "cannot make a pipe for metrics");
    rc = rc < 0 ? rc : door_open(&kind, &m->door, err);
    rc = rc < 0 ? rc : door_listen(m->door, m->listen_fd, false, err);
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
