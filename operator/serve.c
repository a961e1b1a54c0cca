/* SPDX-License-Identifier: Apache-2.0 */
/* A small HTTP server: GET and HEAD, four paths; the rest of a request is ignored.
 * libmicrohttpd runs in external-epoll mode: the loop waits for one descriptor of each
 * listener.
 *
 * Every pod of the cluster may be able to connect, so no client holds a place for long:
 * a connection ends after one answer, or after CLIENT_NS without one; when MAX_CLIENTS
 * are open, a new one ends the oldest; and one address gets CLIENTS_PER_ADDRESS. The
 * health listener shares none of its places with the metrics. */
#include "operator/serve.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include <microhttpd.h>

#include "operator/ask.h"
#include "operator/elect.h"
#include "operator/http_clients.h"
#include "operator/process.h"
#include "operator/rival.h"
#include "operator/sinks.h"
#include "operator/webhook.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"

#define MAX_CLIENTS         32u
#define CLIENTS_PER_ADDRESS 8u
#define CLIENT_NS           (10 * NS_PER_S)
#define MAX_METRICS_BYTES   (1u << 20)
#define MAX_JOBS_BYTES      (16u << 20) /* --job-metrics: 100 to 300 bytes per job */

struct listener {
    const struct operator_server *server;
    bool has_metrics;
    struct MHD_Daemon *daemon;
    struct http_clients clients;
};

struct operator_server {
    const struct controller *op;
    uint64_t started_wall_us;
    bool has_job_metrics;
    struct listener listener[SERVE_MAX_FDS];
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
        .webhook_depth = webhook_depth(op->webhook),
        .is_synced = controller_is_synced(op),
        .is_leader = controller_leads(op),
        .is_rival_alive = op->rival && rival_is_alive(op->rival),
    };

    process_read(&g.process);
    if (op->ask)
        ask_count(op->ask, &g.ask);
    m.watch_events = sinks_n_events(op);
    for (int i = 0; i < STATE_COUNT; i++) {
        g.jobs[METRICS_HOROVODJOB][i] =
            store_n_jobs(op->store, KUBE_JOB, (enum job_state)i);
        g.jobs[METRICS_MPIJOB][i] =
            store_n_jobs(op->store, KUBE_MPIJOB, (enum job_state)i);
    }
    metrics_render(&m, &g, out);
}

struct job_lines {
    size_t row;
    struct strbuf text;
};

static void render_report(void *arg, const char *key, const struct live_report *r)
{
    struct job_lines *l = arg;

    metrics_render_job(l->row, key, r, &l->text);
}

/* Too many jobs must not cost the other metrics. */
static void render_job_metrics(const struct controller *op, struct strbuf *out)
{
    struct job_lines l = {0};

    strbuf_init(&l.text, MAX_JOBS_BYTES);
    metrics_render_infos_head(&l.text);
    store_each_job(op->store, render_info, &l.text);
    for (; op->ask && l.row < METRICS_JOB_ROWS; l.row++) {
        metrics_render_job_head(l.row, &l.text);
        ask_each(op->ask, render_report, &l);
    }
    if (strbuf_status(&l.text) == 0)
        strbuf_add(out, l.text.p, l.text.n);
    else
        strbuf_puts(out, "# lines of single jobs are left out: too many jobs\n");
    strbuf_release(&l.text);
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
serve_render(const struct listener *l, const char *path, struct strbuf *out)
{
    if (l->has_metrics && strcmp(path, "/metrics") == 0) {
        render_metrics(l->server, out);
        if (l->server->has_job_metrics)
            render_job_metrics(l->server->op, out);
    } else if (strcmp(path, "/healthz") == 0 || strcmp(path, "/livez") == 0)
        strbuf_puts(out, "ok\n");
    else if (strcmp(path, "/readyz") == 0)
        return render_ready(l->server->op, out);
    else {
        strbuf_printf(out, "not found: try /healthz, /livez%s\n",
                      l->has_metrics ? ", /readyz or /metrics" : " or /readyz");
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
    const struct listener *l = arg;
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
    strbuf_init(&out, MAX_METRICS_BYTES + MAX_JOBS_BYTES);
    if (strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0)
        status = serve_render(l, url, &out);
    if (strbuf_status(&out))
        status = MHD_HTTP_INTERNAL_SERVER_ERROR;
    r = MHD_create_response_from_buffer(out.n, (void *)(uintptr_t)strbuf_str(&out),
                                        MHD_RESPMEM_MUST_COPY);
    strbuf_release(&out);
    if (!r)
        return MHD_NO;
    (void)MHD_add_response_header(r, "Content-Type", "text/plain; version=0.0.4");
    (void)MHD_add_response_header(r, "Connection", "close");
    rc = MHD_queue_response(c, status, r);
    MHD_destroy_response(r);
    return rc;
}

/* --- connections ------------------------------------------------------------------ */

static void on_connection(void *arg,
                          struct MHD_Connection *c,
                          void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct listener *l = arg;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);

    if (code == MHD_CONNECTION_NOTIFY_STARTED && info)
        *context = clients_add(&l->clients, info->connect_fd);
    if (code == MHD_CONNECTION_NOTIFY_CLOSED)
        clients_remove(&l->clients, *context);
}

/* --- listeners -------------------------------------------------------------------- */

/* at NULL: on all addresses. */
static struct MHD_Daemon *listener_start_daemon(struct listener *l,
                                                unsigned flags,
                                                uint16_t port,
                                                const struct sockaddr_storage *at)
{
    return MHD_start_daemon(
        flags | MHD_USE_EPOLL, port, NULL, NULL, on_request, l,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)l->clients.max + CLIENTS_ENDING,
        MHD_OPTION_PER_IP_CONNECTION_LIMIT, CLIENTS_PER_ADDRESS,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, l,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)8192,
        at ? MHD_OPTION_SOCK_ADDR : MHD_OPTION_END, at, MHD_OPTION_END);
}

static int listener_start(struct listener *l,
                          const char *address,
                          const char *option,
                          uint16_t port,
                          struct err *err)
{
    struct sockaddr_storage at;
    int rc;

    clients_init(&l->clients, MAX_CLIENTS, CLIENT_NS);
    errno = 0;
    if (*address) {
        rc = http_address_parse("http-address", address, port, &at, err);
        if (rc < 0)
            return rc;
        l->daemon = listener_start_daemon(
            l, at.ss_family == AF_INET6 ? MHD_USE_IPv6 : 0, port, &at);
    } else {
        l->daemon = listener_start_daemon(l, MHD_USE_DUAL_STACK, port, NULL);
        if (!l->daemon) /* no IPv6 on this host */
            l->daemon = listener_start_daemon(l, 0, port, NULL);
    }
    if (!l->daemon)
        return err_errno(err, errno ? errno : EADDRINUSE, "--%s: cannot listen on %u",
                         option, port);
    return 0;
}

int serve_new(const struct controller *op,
              const struct serve_options *o,
              struct operator_server **ret,
              struct err *err)
{
    const struct {
        const char *option;
        uint32_t port;
        bool is_used, has_metrics;
    } ports[SERVE_MAX_FDS] = {
        {"http-port", o->http_port, true, true},
        {"monitoring-port", o->monitoring_port,
         o->monitoring_port && o->monitoring_port != o->http_port, true},
        {"health-port", o->health_port,
         o->health_port && o->health_port != o->http_port
             && o->health_port != o->monitoring_port,
         false},
    };
    struct operator_server *s = mem_zalloc(sizeof(*s));
    int rc;

    if (!s)
        return err_set(err, -ENOMEM, "out of memory");
    s->op = op;
    s->started_wall_us = clock_wall_us();
    s->has_job_metrics = o->has_job_metrics;
    for (size_t i = 0; i < ARRAY_LEN(ports); i++) {
        struct listener *l = &s->listener[s->n];

        if (!ports[i].is_used)
            continue;
        l->server = s;
        l->has_metrics = ports[i].has_metrics;
        rc = listener_start(l, o->address, ports[i].option, (uint16_t)ports[i].port,
                            err);
        if (rc < 0) {
            serve_free(s);
            return rc;
        }
        s->n++;
    }
    *ret = s;
    return 0;
}

void serve_free(struct operator_server *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n; i++)
        MHD_stop_daemon(s->listener[i].daemon);
    mem_free(s);
}

size_t serve_fds(const struct operator_server *s, struct pollfd *ret)
{
    for (size_t i = 0; i < s->n; i++) {
        const union MHD_DaemonInfo *d =
            MHD_get_daemon_info(s->listener[i].daemon, MHD_DAEMON_INFO_EPOLL_FD);

        ret[i] = (struct pollfd){.fd = d ? d->epoll_fd : -1, .events = POLLIN};
    }
    return s->n;
}

uint64_t serve_next_ns(const struct operator_server *s, uint64_t now_ns)
{
    uint64_t next = UINT64_MAX;
    MHD_UNSIGNED_LONG_LONG ms;

    for (size_t i = 0; i < s->n; i++) {
        const struct listener *l = &s->listener[i];

        next = earlier_ns(next, clients_next_ns(&l->clients));
        if (MHD_get_timeout(l->daemon, &ms) == MHD_YES)
            next = earlier_ns(next, now_ns + ms * NS_PER_MS);
    }
    return next;
}

void serve_run(struct operator_server *s)
{
    uint64_t now_ns = clock_now_ns();

    for (size_t i = 0; i < s->n; i++) {
        clients_end_idle(&s->listener[i].clients, now_ns);
        (void)MHD_run(s->listener[i].daemon);
    }
}
