/* SPDX-License-Identifier: Apache-2.0 */
/* hvd-operator: arguments, signals and wiring; no decisions.
 *
 *   watches --> sinks --> store --> queue --> sync --> apply --> API server
 *                                                  '--> record, status patch
 *
 * Exit codes: 0 stopped by a signal; 1 cannot work (the log has the cause); 2 wrong
 * usage. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>

#include "operator/elect.h"
#include "operator/loop.h"
#include "operator/options.h"
#include "operator/record.h"
#include "operator/rival.h"
#include "operator/sinks.h"
#include "operator/sync.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"

#define RIVAL_STEPS 5u /* of mpi-operator's Lease; longer than its renewal takes */

bool controller_leads(const struct controller *op)
{
    return !op->elect || elect_leads(op->elect);
}

/* --- wiring ----------------------------------------------------------------------- */

static void
on_identity_answer(void *arg, const char *method, int http, uint64_t took_ns)
{
    metrics_request(&((struct controller *)arg)->metrics, method, http, took_ns);
}

static bool leader_may_write(void *arg)
{
    return controller_leads(arg);
}

/* A new leader lists everything again: its watches may lag behind the former leader's
 * writes, and so may facts that no watch shows. */
static void on_lead(void *arg, bool leads)
{
    struct controller *op = arg;

    if (op->rival)
        rival_forget(op->rival);
    if (leads) {
        store_doubt(op->store);
        sinks_relist(op);
    } else {
        kube_fence(op->kube);
    }
}

/* Also with a kubeconfig: two replicas of a Deployment are still two. */
static bool is_in_pod(const struct kube_config *config)
{
    const char *host = getenv("KUBERNETES_SERVICE_HOST");

    return config->is_pod || (host && *host);
}

static int make_elect(struct controller *op,
                      const struct kube_config *config,
                      const struct operator_options *o,
                      struct err *err)
{
    struct elect_config e = {.ns = o->lock_namespace,
                             .name = o->lease_name,
                             .duration_ms = o->lease_duration_ms,
                             .renew_ms = o->lease_renew_ms,
                             .retry_ms = o->lease_retry_ms,
                             .changed = on_lead,
                             .arg = op};

    if (o->is_leader_elect_set ? !o->leader_elect : !is_in_pod(config))
        return 0;
    if (!e.ns)
        e.ns = config->ns && *config->ns ? config->ns : "default";
    return elect_new(op->kube, &e, &op->elect, err);
}

/* Not if our own Lease has that name. */
static int
make_rival(struct controller *op, const struct operator_options *o, struct err *err)
{
    if (!*o->rival_namespace || strcmp(o->lease_name, "mpi-operator") == 0)
        return 0;
    return rival_new(op->kube, o->rival_namespace, RIVAL_STEPS * o->lease_retry_ms,
                     &op->rival)
                   < 0
               ? err_set(err, -ENOMEM, "out of memory")
               : 0;
}

static int controller_wire(struct controller *op,
                           const struct kube_config *config,
                           const struct operator_options *o,
                           struct err *err)
{
    struct kube_options k = {.qps = o->qps,
                             .burst = o->burst,
                             .seen = on_identity_answer,
                             .seen_arg = op,
                             .may_write = leader_may_write,
                             .may_write_arg = op};
    int rc;

    op->objects.runtime_image = o->runtime_image;
    op->objects.cluster_domain = o->cluster_domain;
    op->objects.gang_scheduler = o->gang_scheduling;
    if (strcmp(o->gang_scheduling, "volcano") == 0)
        op->objects.gang = GANG_VOLCANO;
    else if (*o->gang_scheduling)
        op->objects.gang = GANG_SCHEDULER_PLUGINS;
    op->started_ns = clock_now_ns();
    rc = kube_new(config, &k, &op->kube, err);
    if (rc < 0)
        return rc;
    op->store = store_new();
    op->queue = queue_new();
    op->record = record_new(op->kube);
    if (!op->store || !op->queue || !op->record || sinks_open(op, o) < 0)
        return err_set(err, -ENOMEM, "out of memory");
    rc = make_rival(op, o, err);
    return rc < 0 ? rc : make_elect(op, config, o, err);
}

static void controller_unwire(struct controller *op)
{
    kube_free(op->kube); /* first: no callback runs after it */
    sync_drop_all(op);
    elect_free(op->elect);
    rival_free(op->rival);
    sinks_close(op);
    priorities_release(&op->priorities);
    record_free(op->record);
    queue_free(op->queue);
    store_free(op->store);
    pace_release(&op->pace);
}

static int
load_config(const struct operator_options *o, struct kube_config *ret, struct err *err)
{
    const char *list = getenv("KUBECONFIG");

    int rc;

    if (o->kubeconfig || (list && *list))
        rc = kube_config_load(o->kubeconfig, list, getenv("HOME"), ret, err);
    else
        rc = kube_config_incluster(getenv("KUBERNETES_SERVICE_HOST"),
                                   getenv("KUBERNETES_SERVICE_PORT"), INCLUSTER_DIR,
                                   ret, err);
    if (o->master && (rc == 0 || rc == -ENOENT))
        rc = kube_config_set_server(ret, o->master, err);
    return rc;
}

static void log_start(const struct operator_options *o,
                      const struct kube_config *config,
                      const struct controller *op)
{
    log_info("hvd-operator starts",
             "version=%s server=%s namespace=%s runtime_image=%s http_port=%u "
             "leader_elect=%s",
             HVD_VERSION_STRING, config->server, o->ns ? o->ns : "(all)",
             o->runtime_image, o->serve.http_port,
             op->elect ? elect_identity(op->elect) : "no");
    if (config->is_insecure)
        log_warn("the API server's certificate is not verified, continuing",
                 "cause=\"insecure-skip-tls-verify in the kubeconfig\"");
    for (size_t i = 0; i < o->n_idle; i++)
        log_info("option has no effect", "option=--%s why=\"%s\"", o->idle[i].name,
                 o->idle[i].why);
}

static int open_signals(struct err *err)
{
    sigset_t set;
    int fd;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    (void)signal(SIGPIPE, SIG_IGN);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return err_errno(err, errno, "sigprocmask");
    fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return fd < 0 ? err_errno(err, errno, "signalfd") : fd;
}

static int operator_run(const struct operator_options *o, struct err *err)
{
    CLEANUP(kube_config_release) struct kube_config config = {0};
    CLEANUP(fd_close) int signal_fd = -1;
    struct controller op = {0};
    struct operator_server *serve = NULL;
    int rc;

    signal_fd = open_signals(err);
    rc = signal_fd < 0 ? signal_fd : load_config(o, &config, err);
    if (rc == 0)
        rc = controller_wire(&op, &config, o, err);
    if (rc == 0)
        rc = serve_new(&op, &o->serve, &serve, err);
    if (rc == 0) {
        log_start(o, &config, &op);
        rc = loop_run(&op, serve, signal_fd, err);
    }
    serve_free(serve);
    controller_unwire(&op);
    return rc;
}

static int print_text(void (*make)(struct strbuf *))
{
    struct strbuf b;
    int rc;

    strbuf_init(&b, 65536);
    make(&b);
    rc = strbuf_status(&b) || fputs(strbuf_str(&b), stdout) < 0;
    strbuf_release(&b);
    return rc;
}

int main(int argc, char **argv)
{
    struct err err = ERR_INIT;
    struct operator_options o;

    log_set_tag("hvd-operator", NULL);
    if (options_parse(argc, argv, getenv("KUBEFLOW_NAMESPACE"), &o, &err) < 0) {
        (void)fprintf(stderr, "hvd-operator: %s\n", err.text);
        return 2;
    }
    log_set_level(o.log_level);
    log_set_json(o.log_json);
    log_set_lossy(true); /* the only thread must not wait for the log's reader */
    switch (o.what) {
    case OPTIONS_HELP:
        return print_text(options_help);
    case OPTIONS_MAN:
        return print_text(options_man);
    case OPTIONS_VERSION:
        return puts("hvd-operator " HVD_VERSION_STRING) < 0;
    case OPTIONS_RUN:
        break;
    }
    if (operator_run(&o, &err) < 0) {
        log_error("hvd-operator stops", "cause=\"%s\"", err.text);
        return 1;
    }
    return 0;
}
