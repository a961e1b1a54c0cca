/* SPDX-License-Identifier: Apache-2.0 */
/* A small HTTP server: GET and HEAD, four paths; the rest of a request is ignored.
 * libmicrohttpd runs in external-epoll mode: the loop waits for its one descriptor. */
#include "operator/serve.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include <microhttpd.h>

#include "operator/elect.h"
#include "operator/process.h"
#include "operator/rival.h"
#include "operator/sinks.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"

#define MAX_CLIENTS       32
#define CLIENT_TIMEOUT_S  10
#define MAX_METRICS_BYTES (4u << 20) /* a hundred bytes per job */

struct operator_server {
    const struct controller *op;
    uint64_t started_wall_us;
    struct MHD_Daemon *daemon[SERVE_MAX_FDS];
    size_t n;
};

static uint64_t silence_ns(const struct controller *op, uint64_t now_ns)
{
    uint64_t first = sinks_received_ns(op);

    return now_ns - (first ? first : op->started_ns);
}

/* "mpijob:namespace/name" */
static void render_info(void *arg, const char *key)
{
    const char *ns, *slash = strchr(key, '/');
    char space[256];

    if (store_key_kind(key) != KUBE_MPIJOB || !slash)
        return;
    ns = strchr(key, ':') + 1;
    (void)snprintf(space, sizeof(space), "%.*s", (int)(slash - ns), ns);
    metrics_render_info(space, slash + 1, arg);
}

static void render_metrics(const struct operator_server *s, struct strbuf *out)
{
    const struct controller *op = s->op;
    uint64_t now_ns = clock_now_ns();
    struct operator_metrics m = op->metrics;
    struct gauges g = {
        .pods = store_n_pods(op->store),
        .pod_bytes = store_pod_bytes(op->store),
        .queue_depth = queue_depth(op->queue),
        .watch_restarts = sinks_n_restarts(op),
        .uptime_s = (now_ns - op->started_ns) / NS_PER_S,
        .oldest_watch_ns = silence_ns(op, now_ns),
        .started_wall_us = s->started_wall_us,
        .version = HVD_VERSION_STRING,
        .is_synced = controller_is_synced(op),
        .is_leader = controller_leads(op),
        .is_rival_alive = op->rival && rival_is_alive(op->rival),
    };

    process_read(&g.process);
    m.watch_events = sinks_n_events(op);
    for (int i = 0; i < STATE_COUNT; i++) {
        g.jobs[METRICS_HOROVODJOB][i] =
            store_n_jobs(op->store, KUBE_JOB, (enum job_state)i);
        g.jobs[METRICS_MPIJOB][i] =
            store_n_jobs(op->store, KUBE_MPIJOB, (enum job_state)i);
    }
    metrics_render(&m, &g, out);
    metrics_render_infos_head(out);
    store_each_job(op->store, render_info, out);
}

static unsigned render_ready(const struct controller *op, struct strbuf *out)
{
    const char *why = op->elect ? elect_trouble(op->elect) : "";

    if (controller_is_synced(op) && !*why) {
        strbuf_puts(out, "ok\n");
        return MHD_HTTP_OK;
    }
    if (!*why)
        why = sinks_trouble(op);
    strbuf_printf(out, "not ready: %s\n", *why ? why : "the caches are being filled");
    return MHD_HTTP_SERVICE_UNAVAILABLE;
}

static unsigned
serve_render(const struct operator_server *s, const char *path, struct strbuf *out)
{
    if (strcmp(path, "/metrics") == 0)
        render_metrics(s, out);
    else if (strcmp(path, "/healthz") == 0 || strcmp(path, "/livez") == 0)
        strbuf_puts(out, "ok\n");
    else if (strcmp(path, "/readyz") == 0)
        return render_ready(s->op, out);
    else {
        strbuf_puts(out, "not found: try /healthz, /livez, /readyz or /metrics\n");
        return MHD_HTTP_NOT_FOUND;
    }
    return MHD_HTTP_OK;
}

static enum MHD_Result on_request(void *arg,
                                  struct MHD_Connection *c,
                                  const char *url,
                                  const char *method,
                                  const char *version,
                                  const char *data,
                                  size_t *n_data,
                                  void **state)
{
    const struct operator_server *s = arg;
    struct MHD_Response *r;
    enum MHD_Result rc;
    struct strbuf out;
    unsigned status = MHD_HTTP_METHOD_NOT_ALLOWED;

    (void)version;
    (void)data;
    (void)state;
    if (*n_data > 0) { /* a body is read and dropped */
        *n_data = 0;
        return MHD_YES;
    }
    strbuf_init(&out, MAX_METRICS_BYTES);
    if (strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0)
        status = serve_render(s, url, &out);
    if (strbuf_status(&out))
        status = MHD_HTTP_INTERNAL_SERVER_ERROR;
    r = MHD_create_response_from_buffer(out.n, (void *)(uintptr_t)strbuf_str(&out),
                                        MHD_RESPMEM_MUST_COPY);
    strbuf_release(&out);
    if (!r)
        return MHD_NO;
    (void)MHD_add_response_header(r, "Content-Type", "text/plain; version=0.0.4");
    rc = MHD_queue_response(c, status, r);
    MHD_destroy_response(r);
    return rc;
}

/* at NULL: on all addresses. */
static struct MHD_Daemon *serve_start_daemon(struct operator_server *s,
                                             unsigned flags,
                                             uint16_t port,
                                             const struct sockaddr *at)
{
    return MHD_start_daemon(flags | MHD_USE_EPOLL, port, NULL, NULL, on_request, s,
                            MHD_OPTION_CONNECTION_LIMIT, (unsigned)MAX_CLIENTS,
                            MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)CLIENT_TIMEOUT_S,
                            MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)8192,
                            at ? MHD_OPTION_SOCK_ADDR : MHD_OPTION_END, at,
                            MHD_OPTION_END);
}

static struct MHD_Daemon *serve_start_at(struct operator_server *s,
                                         const char *address,
                                         uint16_t port,
                                         struct err *err)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};

    if (inet_pton(AF_INET, address, &v4.sin_addr) == 1)
        return serve_start_daemon(s, 0, port, (const struct sockaddr *)&v4);
    if (inet_pton(AF_INET6, address, &v6.sin6_addr) == 1)
        return serve_start_daemon(s, MHD_USE_IPv6, port, (const struct sockaddr *)&v6);
    (void)err_set(err, -EINVAL, "--http-address: \"%s\" is not an IP address", address);
    return NULL;
}

static struct MHD_Daemon *listen_on(struct operator_server *s,
                                    const char *address,
                                    const char *option,
                                    uint16_t port,
                                    struct err *err)
{
    struct MHD_Daemon *d;
    int e;

    errno = 0;
    if (*address) {
        d = serve_start_at(s, address, port, err);
    } else {
        d = serve_start_daemon(s, MHD_USE_DUAL_STACK, port, NULL);
        if (!d) /* no IPv6 on this host */
            d = serve_start_daemon(s, 0, port, NULL);
    }
    e = errno;
    if (!d && err->code)
        return NULL;
    if (!d)
        (void)err_errno(err, e ? e : EADDRINUSE, "--%s: cannot listen on %u", option,
                        port);
    return d;
}

int serve_new(const struct controller *op,
              const char *address,
              uint32_t port,
              uint32_t second_port,
              struct operator_server **ret,
              struct err *err)
{
    struct operator_server *s = mem_zalloc(sizeof(*s));

    if (!s)
        return err_set(err, -ENOMEM, "out of memory");
    s->op = op;
    s->started_wall_us = clock_wall_us();
    s->daemon[0] = listen_on(s, address, "http-port", (uint16_t)port, err);
    s->n = s->daemon[0] != NULL;
    if (s->n && second_port && second_port != port) {
        s->daemon[1] =
            listen_on(s, address, "monitoring-port", (uint16_t)second_port, err);
        if (!s->daemon[1]) {
            serve_free(s);
            return -EADDRINUSE;
        }
        s->n = 2;
    }
    if (!s->n) {
        mem_free(s);
        return -EADDRINUSE;
    }
    *ret = s;
    return 0;
}

void serve_free(struct operator_server *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n; i++)
        MHD_stop_daemon(s->daemon[i]);
    mem_free(s);
}

size_t serve_fds(const struct operator_server *s, struct pollfd *ret)
{
    for (size_t i = 0; i < s->n; i++) {
        const union MHD_DaemonInfo *d =
            MHD_get_daemon_info(s->daemon[i], MHD_DAEMON_INFO_EPOLL_FD);

        ret[i] = (struct pollfd){.fd = d ? d->epoll_fd : -1, .events = POLLIN};
    }
    return s->n;
}

uint64_t serve_next_ns(const struct operator_server *s, uint64_t now_ns)
{
    uint64_t next = UINT64_MAX;
    MHD_UNSIGNED_LONG_LONG ms;

    for (size_t i = 0; i < s->n; i++) {
        if (MHD_get_timeout(s->daemon[i], &ms) == MHD_YES
            && now_ns + ms * NS_PER_MS < next)
            next = now_ns + ms * NS_PER_MS;
    }
    return next;
}

void serve_run(struct operator_server *s)
{
    for (size_t i = 0; i < s->n; i++)
        (void)MHD_run(s->daemon[i]);
}
